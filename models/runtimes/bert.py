"""The forward pass of a BERT-type encoder in torch.

Weights are prepared once: query, key and value become one matrix, token type 0 is added to the
positions. Measured on one CPU thread, that and adding in place save 1 to 5 % of a batch.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018; tensor names
as in the transformers library.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the name that torch's own documentation uses)
from torch import Tensor

from ...service.regular_files import read_regular
from ...wire.errors import StoreError
from .packing import PackedLinear, plain_linear

_CONFIG_BYTES_MAX = 1_000_000
_SUPPORTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The parts of `config.json` that the forward pass needs."""

    layers: int
    heads: int
    width: int
    positions: int
    epsilon: float

    @staticmethod
    def from_file(path: Path) -> "BertConfig":
        """Read `config.json`.

        Raises:
            StoreError: not the configuration of an encoder that this module can run.
        """
        try:
            wire = json.loads(read_regular(path, _CONFIG_BYTES_MAX))
            faults = [
                f"{key} is {wire[key]!r}"
                for key, want in _SUPPORTED.items()
                if wire.get(key, want) != want
            ]
            config = BertConfig(
                layers=int(wire["num_hidden_layers"]),
                heads=int(wire["num_attention_heads"]),
                width=int(wire["hidden_size"]),
                positions=int(wire["max_position_embeddings"]),
                epsilon=float(wire["layer_norm_eps"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{path.name} is not the configuration of an encoder: {error!r}"
            ) from error
        if faults:
            raise StoreError(f"{path.name}: this runtime cannot run it: {', '.join(faults)}")
        return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Where and how an encoder computes. `packed`: its linear layers are `PackedLinear`."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Affine:
    """Weight and bias of a linear layer or of a layer norm."""

    weight: Tensor
    bias: Tensor


Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The parts of one transformer layer."""

    query_key_value: Step
    attention: Step
    attention_norm: Affine
    widen: Step
    narrow: Step
    output_norm: Affine


class BertEncoder:
    """Token ids in, hidden states out. Immutable once made; holds the weights on its device."""

    def __init__(
        self, config: BertConfig, tensors: Mapping[str, Tensor], arithmetic: Arithmetic
    ) -> None:
        """Prepare the weights.

        Raises:
            StoreError: a tensor is missing.
        """
        self.config = config
        weights = _Weights(tensors, arithmetic)
        self._words = weights["embeddings.word_embeddings.weight"]
        self._positions = (
            weights["embeddings.position_embeddings.weight"]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = weights.affine("embeddings.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{at}.") for at in range(config.layers)]

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are."""
        return int(self._words.shape[0])

    def __call__(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states (rows × longest × width) of ids (rows × longest).

        `mask` (bool) is true where a token is real; None where all are, which saves the attention
        from reading it. Padding may lie on either side: positions count real tokens only.
        """
        rows, longest = ids.shape
        hidden = F.embedding(ids, self._words)
        if mask is None:
            hidden = hidden + self._positions[:longest]
        else:
            hidden = hidden + F.embedding((mask.cumsum(1) - 1).clamp_(min=0), self._positions)
        hidden = self._normed(hidden, self._norm).view(rows * longest, -1)
        attention_mask = None if mask is None else mask[:, None, None, :]
        for layer in self._layers:
            attended = self._attention(hidden, layer, (rows, longest), attention_mask)
            hidden = self._normed(attended.add_(hidden), layer.attention_norm)
            widened = F.gelu(layer.widen(hidden))
            hidden = self._normed(layer.narrow(widened).add_(hidden), layer.output_norm)
        return hidden.view(rows, longest, -1)

    def _attention(
        self, hidden: Tensor, layer: Layer, shape: tuple[int, int], mask: Tensor | None
    ) -> Tensor:
        rows, longest = shape
        heads = self.config.heads
        parts = layer.query_key_value(hidden).view(rows, longest, 3, heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return layer.attention(mixed.transpose(1, 2).reshape(rows * longest, -1))

    def _normed(self, hidden: Tensor, norm: Affine) -> Tensor:
        return F.layer_norm(
            hidden, (self.config.width,), norm.weight, norm.bias, self.config.epsilon
        )


class _Weights:
    """Tensors by name, moved to their device; some files put `bert.` before every name."""

    def __init__(self, tensors: Mapping[str, Tensor], arithmetic: Arithmetic) -> None:
        self._tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
        self._place: dict[str, Any] = {"device": arithmetic.device, "dtype": arithmetic.dtype}
        self._linear = PackedLinear if arithmetic.packed else plain_linear

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._tensors[name].to(**self._place)
        except KeyError as error:
            raise StoreError(f"the weights have no tensor {name!r}") from error

    def affine(self, name: str) -> Affine:
        return Affine(self[f"{name}.weight"], self[f"{name}.bias"])

    def linear(self, *names: str) -> Step:
        """One layer of those of these names, whose outputs lie one after the other."""
        parts = [self.affine(name) for name in names]
        weight = torch.cat([part.weight for part in parts])
        return self._linear(weight, torch.cat([part.bias for part in parts]))


def _layer(weights: _Weights, prefix: str) -> Layer:
    attention = f"{prefix}attention.self."
    return Layer(
        query_key_value=weights.linear(*(attention + part for part in ("query", "key", "value"))),
        attention=weights.linear(f"{prefix}attention.output.dense"),
        attention_norm=weights.affine(f"{prefix}attention.output.LayerNorm"),
        widen=weights.linear(f"{prefix}intermediate.dense"),
        narrow=weights.linear(f"{prefix}output.dense"),
        output_norm=weights.affine(f"{prefix}output.LayerNorm"),
    )
