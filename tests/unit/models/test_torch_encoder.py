import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.cpu_time import cpu_time
from tokenizers import Tokenizer
from torch.nn.functional import gelu

from batchfleet.models.engines import Engine, is_alike
from batchfleet.models.likeness import likeness_of
from batchfleet.models.model import LoadContext, Row
from batchfleet.models.runtimes.torch_encoder import TorchEncoder
from batchfleet.models.stacking import stack_rows
from batchfleet.wire.deployment import BF16, EXACT, Limits
from batchfleet.wire.errors import CallerError, ErrorKind, StoreError
from batchfleet.wire.tensors import decode_columns

TEXTS = [
    "hi",
    "A cat sits on the mat.",
    "Quarterly revenue rose 4% on strong cloud demand " * 5,
    "Ünïcode, 日本語 and emoji 🎈 in one line",
    "def compress(data, level=9): return gzip.compress(data, level)",
]


@pytest.fixture(scope="module")
def make_encoder(minilm):
    """Load the real model with other parameters or limits; the plain one is kept."""
    manifest, folder = minilm

    def make(limits=None, folder=folder, **parameters):
        encoder = TorchEncoder()
        encoder.load(
            LoadContext(
                model="minilm",
                version="1",
                device="cpu",
                threads=1,
                seed=0,
                parameters={**manifest.parameters, **parameters},
                signature=manifest.signature,
                limits=limits or manifest.limits,
                folder=folder,
            )
        )
        return encoder

    return make


@pytest.fixture(scope="module")
def encoder(make_encoder):
    return make_encoder()


@pytest.fixture
def embed(batch):
    """Take texts through the model as one batch, as a device process does."""

    def embed(encoder, texts):
        prepared = [encoder.preprocess(Row({"text": text})) for text in texts]
        lengths = [one.length for one in prepared]
        rows = stack_rows(
            [one.value for one in prepared], lengths, encoder.pad_side, encoder.pad_value
        )
        return np.stack([out["embedding"] for out in encoder.predict(rows, batch(*lengths))])

    return embed


def reference(folder, text):
    """One text through the textbook form of the model: nothing fused, batched, padded or masked."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = torch.tensor(tokenizer.encode(text).ids)
    weights = load_file(folder / "model.safetensors")

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        spread = torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-12)
        scaled = (x - x.mean(-1, keepdim=True)) / spread
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for at in range(6):
        layer = f"encoder.layer.{at}"
        query, key, value = (
            linear(x, f"{layer}.attention.self.{part}").view(-1, 12, 32).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        attention = torch.softmax(query @ key.transpose(1, 2) / 32**0.5, -1)
        mixed = (attention @ value).transpose(0, 1).reshape(len(ids), 384)
        x = norm(
            x + linear(mixed, f"{layer}.attention.output.dense"),
            f"{layer}.attention.output.LayerNorm",
        )
        wide = gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    pooled = x.mean(0)
    return (pooled / pooled.norm()).numpy()


def test_it_computes_what_the_textbook_says(encoder, embed, minilm):
    vectors = embed(encoder, TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert np.abs(vector - reference(minilm[1], text)).max() <= 1e-5


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_batch_equals_single_runs(make_encoder, embed, side, pooling, normalize):
    encoder = make_encoder(pad_side=side, pooling=pooling, normalize=normalize)
    together = embed(encoder, TEXTS)
    alone = np.concatenate([embed(encoder, [text]) for text in TEXTS])
    assert np.abs(together - alone).max() <= 1e-5
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5) == normalize


def test_both_padding_sides_agree(make_encoder, embed):
    left, right = (embed(make_encoder(pad_side=side), TEXTS) for side in ("left", "right"))
    assert np.abs(left - right).max() <= 1e-5


def test_the_golden_examples_hold(encoder, embed, minilm):
    for example in minilm[0].golden:
        vectors = embed(encoder, example.inputs["text"])
        expected = decode_columns(example.outputs)["embedding"]
        assert np.abs(vectors - expected).max() <= example.tolerance


def test_related_texts_are_near_each_other(encoder, embed):
    cat, kitten, money = embed(encoder, ["A cat on a mat", "A kitten on a rug", "Revenue rose 4%"])
    assert cat @ kitten > cat @ money + 0.2


def test_lengths_are_exact_and_hold_no_padding(encoder):
    prepared = encoder.preprocess(Row({"text": "hello world"}))
    assert prepared.value["ids"].tolist() == [101, 7592, 2088, 102]
    assert (prepared.length, prepared.truncated_tokens) == (4, 0)


def test_a_long_text_is_cut_and_keeps_its_end_mark(encoder):
    prepared = encoder.preprocess(Row({"text": "time " * 300}, truncate="end"))
    ids = prepared.value["ids"]
    assert (prepared.length, prepared.truncated_tokens, len(ids)) == (256, 46, 256)
    assert (ids[0], ids[-1], set(ids[1:-1])) == (101, 102, {2051})


def test_a_text_that_just_fits_is_not_cut(encoder):
    prepared = encoder.preprocess(Row({"text": "time " * 254}))
    assert (prepared.length, prepared.truncated_tokens) == (256, 0)


def test_a_long_text_is_refused_where_the_policy_says_so(encoder):
    with pytest.raises(CallerError) as caught:
        encoder.preprocess(Row({"text": "time " * 255}, truncate="refuse"))
    assert caught.value.kind is ErrorKind.TOO_LONG


def test_without_a_limit_the_positions_are_the_limit(make_encoder):
    encoder = make_encoder(limits=Limits(max_length=0))
    assert encoder.preprocess(Row({"text": "time " * 900}, truncate="end")).length == 512


@pytest.mark.parametrize("text", ["", b"", b"\xff\xfe", "\ud800", None, 5])
def test_what_is_not_text_is_refused(encoder, text):
    with pytest.raises(ValueError, match=r"."):
        encoder.preprocess(Row({"text": text} if text is not None else {}))


def test_bytes_are_read_as_utf_8(encoder):
    one, other = (encoder.preprocess(Row({"text": text})) for text in ("né", "né".encode()))
    assert one.value["ids"].tolist() == other.value["ids"].tolist()


@pytest.mark.parametrize("length", [3, 16, 64, 256])
def test_examples_have_the_length_asked_for(encoder, length):
    assert encoder.preprocess(encoder.example(length)).length == length


@pytest.mark.parametrize("parameter", ["pooling", "pad_side", "dtype"])
def test_unknown_parameters_are_refused(make_encoder, parameter):
    with pytest.raises(StoreError, match=parameter):
        make_encoder(**{parameter: "nonsense"})


def test_a_configuration_of_another_kind_is_refused(make_encoder, minilm, tmp_path):
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(minilm[1] / name)
    shutil.copy(minilm[1] / "config.json", tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"gelu"', '"relu"'))
    with pytest.raises(StoreError, match="hidden_act is 'relu'"):
        make_encoder(folder=tmp_path)
    config.write_text("{}")
    with pytest.raises(StoreError, match="num_hidden_layers"):
        make_encoder(folder=tmp_path)


MEGABYTES = 4 * 1024 * 1024
# Ten times what they take where nothing else runs; the whole of them takes as much again and more.
CUT_S = 1.5
LONG = {
    "words": "time " * (MEGABYTES // 5),
    "words that are hard to cut": ("a" * 100 + " ") * (MEGABYTES // 101),
    "one word": "a" * MEGABYTES,
    "one word with marks": "a." * (MEGABYTES // 2),
    "unknown words": ("a" * 101 + " ") * (MEGABYTES // 102),
    "blanks": "time" + " " * MEGABYTES + "time",
    "ideographs": "日" * (MEGABYTES // 3),
    "accents": "é̂" * (MEGABYTES // 4),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_text_of_megabytes_is_cut_before_it_is_tokenized(encoder, kind):
    """X5, T7: what lies behind the tokens that the model takes costs next to nothing."""
    with cpu_time() as taken:
        prepared = encoder.preprocess(Row({"text": LONG[kind]}, truncate="end"))
    assert taken.seconds < CUT_S
    assert prepared.truncated_tokens > 0
    assert prepared.length <= 256


@pytest.mark.parametrize("kind", LONG)
def test_a_text_of_megabytes_is_refused_as_soon(encoder, kind):
    """X5, T7."""
    with cpu_time() as taken, pytest.raises(CallerError) as caught:
        encoder.preprocess(Row({"text": LONG[kind]}, truncate="refuse"))
    assert taken.seconds < CUT_S
    assert caught.value.kind is ErrorKind.TOO_LONG
    assert "over " in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "time " * 9_000,
        "Quarterly revenue rose 4% on strong cloud demand, " * 900,
        "internationalization uncharacteristically " * 600,
        "日本語 and émoji 🎈, in-one.line; " * 1_000,
        "a.b" * 9_000,
        ("a" * 100 + " ") * 300,
    ],
)  # fmt: skip
def test_the_start_of_a_long_text_has_the_tokens_that_it_has_in_the_whole(encoder, minilm, text):
    """X5: where it is cut changes no answer."""
    _, folder = minilm
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    prepared = encoder.preprocess(Row({"text": text}, truncate="end"))
    assert prepared.value["ids"].tolist() == tokenizer.encode(text).ids
    assert prepared.length == 256


@pytest.fixture(scope="module")
def switched(make_encoder):
    return make_encoder()


def test_the_plain_engine_comes_first_and_is_in_use(switched):
    engines = switched.engines()
    assert engines[0] == Engine("plain", EXACT)
    assert len({engine.name for engine in engines}) == len(engines)
    assert BF16 in {engine.precision for engine in engines}


@pytest.mark.parametrize("name", ["plain", "packed", "bf16", "bf16_packed"])
def test_each_engine_answers_within_the_bounds_of_its_precision(encoder, switched, embed, name):
    """In a batch, padded and alone."""
    engine = next((one for one in switched.engines() if one.name == name), None)
    if engine is None:
        pytest.skip("this machine does not offer it")
    expected = {"embedding": embed(encoder, TEXTS)}
    switched.use_engine(name)
    together = {"embedding": embed(switched, TEXTS)}
    alone = {"embedding": np.concatenate([embed(switched, [text]) for text in TEXTS])}
    assert is_alike(likeness_of(together, expected), engine.precision)
    assert is_alike(likeness_of(alone, expected), engine.precision)


def test_an_engine_can_be_left_again(encoder, switched, embed):
    switched.use_engine("bf16")
    assert not np.array_equal(embed(switched, TEXTS), embed(encoder, TEXTS))
    switched.use_engine("plain")
    assert np.array_equal(embed(switched, TEXTS), embed(encoder, TEXTS))
