"""Linear layers whose weights lie in memory as oneDNN reads them, for any torch module on a CPU.

Plain layers leave the layout to the library, which on some CPUs takes half of a layer's time. The
operators used here are those that `torch.compile` emits; they are private, so a probe tries them
before each datatype's first use, and without them layers stay as they are. The public way,
`torch.utils.mkldnn.to_mkldnn`, converts activations as well, which costs more than it saves.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TypeGuard

import torch
import torch.nn.functional as F  # noqa: N812 (the name that torch's own documentation uses)
from torch import Tensor

MakeLinear = Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]]

# A probe of both operators: an answer this near, on numbers up to about ten, is the right one.
_PROBE_ROWS, _PROBE_INPUTS, _PROBE_OUTPUTS = 4, 16, 8
_PROBE_TOLERANCE = 0.1


def plain_linear(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A layer of weight (outputs × inputs) and bias (outputs), as torch runs it."""
    return partial(F.linear, weight=weight, bias=bias)


class PackedLinear(torch.nn.Module):
    """A linear layer for inference on a CPU; in and out as of `torch.nn.Linear`.

    It keeps the packed weight alone and stays in its datatype and on its device: `.to()` does not
    reach it. To read `weight` unpacks a copy.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Pack a weight (outputs × inputs), where `can_pack` its datatype."""
        super().__init__()
        weight = weight.detach().contiguous()
        pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001 (the docstring says why)
        self._packed = pack(weight, None)
        self.bias = None if bias is None else bias.detach()

    @property
    def weight(self) -> Tensor:
        """The weight as it was, outputs × inputs."""
        unpacked: Tensor = self._packed.to_dense()
        return unpacked

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (… × outputs) of inputs (… × inputs) in the datatype of the weight."""
        run = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 (the same)
        outputs: Tensor = run(inputs, self._packed, self.bias, "none", [], "")
        return outputs


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this torch, on this CPU, packs weights of a datatype and computes with them."""
    with torch.inference_mode():
        inputs = torch.arange(_PROBE_ROWS * _PROBE_INPUTS).remainder(5).sub(2).to(dtype)
        weight = torch.arange(_PROBE_OUTPUTS * _PROBE_INPUTS).remainder(7).sub(3).to(dtype)
        inputs, weight = inputs.view(_PROBE_ROWS, -1), weight.view(_PROBE_OUTPUTS, -1)
        bias = torch.ones(_PROBE_OUTPUTS).to(dtype)
        try:
            packed = PackedLinear(weight, bias)(inputs)
        except (AttributeError, RuntimeError):  # the operator is gone, or not for this datatype
            return False
        expected = F.linear(inputs.double(), weight.double(), bias.double())
        return packed.dtype == dtype and torch.allclose(
            packed.double(), expected, rtol=0, atol=_PROBE_TOLERANCE
        )


def pack_linear_layers(module: torch.nn.Module) -> int:
    """Replace the linear layers below a module by packed ones, in place; returns how many.

    For inference on a CPU, in the datatype that each layer has. What cannot be packed stays as it
    is: subclasses of `torch.nn.Linear`, whose owners use them in ways of their own, other devices,
    and every layer where `can_pack` finds no way. A layer that is used twice is packed once.
    """
    made: dict[torch.nn.Module, PackedLinear] = {}
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        if path and _is_packable(layer):
            if layer not in made:
                made[layer] = PackedLinear(layer.weight, layer.bias)
            owner, _, name = path.rpartition(".")
            setattr(module.get_submodule(owner), name, made[layer])
    return len(made)


def _is_packable(layer: torch.nn.Module) -> TypeGuard[torch.nn.Linear]:
    if type(layer) is not torch.nn.Linear:
        return False
    return layer.weight.device.type == "cpu" and can_pack(layer.weight.dtype)
