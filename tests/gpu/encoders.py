"""The encoder to measure: the real one where a store holds it, else one of its size by chance."""

import json
from dataclasses import replace

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from batchfleet.models.importing import minilm_draft
from batchfleet.models.store import Store

WIDTH, LAYERS, HEADS, POSITIONS, WORDS = 384, 6, 12, 512, 30_522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# What an accelerator wants of a batch; the manifest's own limits are for one CPU thread.
LARGE = {"max_batch_size": 256, "max_batch_tokens": 32_768, "max_batch_delay_ms": 2.0}


def publish_encoders(real, target, folder, dtypes):
    """Publish `encoder-<dtype>/1` into `target`; returns manifests, and whether they are MiniLM."""
    sources = _real_files(real) or _files_by_chance(folder)
    draft = minilm_draft()
    manifests = {
        dtype: target.publish(
            replace(
                draft,
                model=f"encoder-{dtype}",
                limits=replace(draft.limits, **LARGE),
                parameters={**draft.parameters, "dtype": dtype},
                golden=(),
            ),
            sources,
        )
        for dtype in dtypes
    }
    return manifests, real is not None and "minilm" in real.models()


def _real_files(store):
    if store is None or "minilm" not in store.models():
        return None
    folder = store.fetch("minilm", store.newest("minilm").manifest.version)
    return {name: folder / name for name in ("model.safetensors", "tokenizer.json", "config.json")}


def _files_by_chance(folder):
    torch.manual_seed(0)
    save_file(_weights(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    _tokenizer().save(str(folder / "tokenizer.json"))
    return {path.name: path for path in folder.iterdir()}


_CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
}


def _weights():
    tensors = {
        "embeddings.word_embeddings.weight": torch.randn(WORDS, WIDTH) * 0.05,
        "embeddings.position_embeddings.weight": torch.randn(POSITIONS, WIDTH) * 0.02,
        "embeddings.token_type_embeddings.weight": torch.zeros(2, WIDTH),
        **_norm("embeddings.LayerNorm"),
    }
    for at in range(LAYERS):
        prefix = f"encoder.layer.{at}."
        for part in ("query", "key", "value"):
            tensors |= _linear(f"{prefix}attention.self.{part}", WIDTH, WIDTH)
        tensors |= _linear(f"{prefix}attention.output.dense", WIDTH, WIDTH)
        tensors |= _norm(f"{prefix}attention.output.LayerNorm")
        tensors |= _linear(f"{prefix}intermediate.dense", 4 * WIDTH, WIDTH)
        tensors |= _linear(f"{prefix}output.dense", WIDTH, 4 * WIDTH)
        tensors |= _norm(f"{prefix}output.LayerNorm")
    return tensors


def _linear(name, outputs, inputs):
    weight = torch.randn(outputs, inputs) * 0.05
    return {f"{name}.weight": weight, f"{name}.bias": torch.zeros(outputs)}


def _norm(name):
    return {f"{name}.weight": torch.ones(WIDTH), f"{name}.bias": torch.zeros(WIDTH)}


def _tokenizer():
    names = [*SPECIAL, "time", *(f"w{number}" for number in range(WORDS - len(SPECIAL) - 1))]
    tokenizer = Tokenizer(WordLevel({name: at for at, name in enumerate(names)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def open_store(path):
    """The store at `path`, or None where there is none."""
    return Store(str(path)) if path and path.is_dir() else None
