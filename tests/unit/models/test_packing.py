import pytest
import torch

from batchfleet.models.runtimes import packing
from batchfleet.models.runtimes.packing import PackedLinear, can_pack, pack_linear_layers

NEAR = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
needs_packing = pytest.mark.skipif(
    not can_pack(torch.float32), reason="this torch packs nothing on this CPU"
)


@pytest.fixture
def no_operators(monkeypatch):
    """A torch without the private operators."""

    class Nothing:
        pass

    monkeypatch.setattr(torch.ops, "mkldnn", Nothing())
    can_pack.cache_clear()
    yield
    can_pack.cache_clear()


@pytest.fixture
def wrong_operator(monkeypatch):
    """A torch whose operator computes something else than a linear layer."""
    monkeypatch.setattr(PackedLinear, "forward", lambda self, inputs: inputs @ self.weight.T)
    can_pack.cache_clear()
    yield
    can_pack.cache_clear()


def two_layers(dtype=torch.float32, *, bias=True):
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(48, 96, bias=bias), torch.nn.GELU(), torch.nn.Linear(96, 32, bias=bias)
    )
    return layers.to(dtype).eval()


def test_the_supported_versions_of_torch_pack_on_this_cpu():
    x86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    assert can_pack(torch.float32) or not x86


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(48,), (1, 48), (7, 48), (2, 5, 48), (0, 48)])
def test_packed_layers_answer_as_plain_ones(dtype, bias, shape):
    if not can_pack(dtype):
        pytest.skip("this torch packs nothing of this kind on this CPU")
    module = two_layers(dtype, bias=bias)
    inputs = torch.randn(shape).to(dtype)
    with torch.inference_mode():
        expected = module(inputs)
        assert pack_linear_layers(module) == 2
        packed = module(inputs)
    assert packed.shape == expected.shape
    assert packed.dtype == dtype
    assert torch.allclose(packed.float(), expected.float(), rtol=0, atol=NEAR[dtype])


@needs_packing
def test_a_packed_layer_answers_to_inputs_that_are_not_contiguous():
    layer = torch.nn.Linear(48, 96)
    inputs = torch.randn(48, 6, 3).transpose(0, 2)
    with torch.inference_mode():
        packed = PackedLinear(layer.weight, layer.bias)
        assert torch.allclose(packed(inputs), layer(inputs), rtol=0, atol=1e-5)


@needs_packing
def test_a_packed_weight_can_be_read():
    layer = torch.nn.Linear(48, 96)
    packed = PackedLinear(layer.weight, layer.bias)
    assert torch.equal(packed.weight, layer.weight)


@needs_packing
def test_a_layer_used_twice_is_packed_once():
    layer = torch.nn.Linear(16, 16)
    module = torch.nn.ModuleDict({"one": layer, "two": layer})
    assert pack_linear_layers(module) == 1
    assert module["one"] is module["two"]


@needs_packing
def test_layers_deep_inside_are_packed_and_subclasses_are_not():
    class Own(torch.nn.Linear):
        pass

    module = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)), Own(4, 4))
    assert pack_linear_layers(module) == 1
    assert isinstance(module[0][0], PackedLinear)
    assert isinstance(module[1], Own)


@needs_packing
@pytest.mark.parametrize("masked", [True, False])
def test_a_transformer_of_torch_answers_the_same(masked):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    inputs = torch.randn(3, 5, 32)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = masked
    with torch.inference_mode():
        expected = module(inputs, src_key_padding_mask=padding)
        assert pack_linear_layers(module) == 4
        packed = module(inputs, src_key_padding_mask=padding)
    assert torch.allclose(packed[1:], expected[1:], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("no_operators")
def test_without_the_operators_layers_stay_as_they_are():
    module = two_layers()
    first = module[0]
    assert not can_pack(torch.float32)
    assert pack_linear_layers(module) == 0
    assert module[0] is first


@pytest.mark.usefixtures("wrong_operator")
def test_an_operator_that_computes_something_else_is_not_used():
    assert not can_pack(torch.float32)
    assert pack_linear_layers(two_layers()) == 0


def test_a_datatype_that_nobody_packs_stays_plain():
    assert not can_pack(torch.float64)
    assert pack_linear_layers(two_layers(torch.float64)) == 0


def test_plain_layers_are_those_of_torch():
    layer = torch.nn.Linear(6, 3)
    inputs = torch.randn(2, 6)
    assert torch.equal(packing.plain_linear(layer.weight, layer.bias)(inputs), layer(inputs))
