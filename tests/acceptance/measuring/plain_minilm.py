"""all-MiniLM-L6-v2 in its textbook form, sharing no code with the product: the judge of answers.

One text at a time; nothing is fused, batched, padded or masked.
"""

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import gelu

_LAYERS, _HEADS, _HEAD_SIZE, _SIZE = 6, 12, 32, 384


class PlainMinilm:
    """The model in a version's folder, in this process."""

    def __init__(self, folder):
        torch.set_num_threads(1)
        self._weights = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def token_count(self, text):
        return len(self._tokenizer.encode(text).ids)

    @torch.no_grad()
    def embed(self, text):
        """The embedding of one text, an array of 384 numbers of length 1."""
        ids = torch.tensor(self._tokenizer.encode(text).ids)
        x = self._weights["embeddings.word_embeddings.weight"][ids]
        x = x + self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        x = x + self._weights["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        for at in range(_LAYERS):
            x = self._layer(x, f"encoder.layer.{at}")
        pooled = x.mean(0)
        return (pooled / pooled.norm()).numpy()

    def _layer(self, x, name):
        query, key, value = (
            self._linear(x, f"{name}.attention.self.{part}")
            .view(-1, _HEADS, _HEAD_SIZE)
            .transpose(0, 1)
            for part in ("query", "key", "value")
        )
        attention = torch.softmax(query @ key.transpose(1, 2) / _HEAD_SIZE**0.5, -1)
        mixed = (attention @ value).transpose(0, 1).reshape(-1, _SIZE)
        x = self._norm(
            x + self._linear(mixed, f"{name}.attention.output.dense"),
            f"{name}.attention.output.LayerNorm",
        )
        wide = gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._norm(
            x + self._linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _linear(self, x, name):
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x, name):
        spread = torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-12)
        scaled = (x - x.mean(-1, keepdim=True)) / spread
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
