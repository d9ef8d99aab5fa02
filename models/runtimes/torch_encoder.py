"""Text → one vector, with a BERT-type encoder in plain torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the name that torch's own documentation uses)
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from ...wire.errors import StoreError
from ..lengths import tokens_to_cut
from ..model import LoadContext, Model, PredictContext, Prepared, Row
from .bert import BertConfig, BertEncoder

_POOLINGS = ("mean", "cls")
_PAD_SIDES = ("left", "right")
_DTYPES = ("fp32", "fp16")
# Up to the first, all of a text is counted. A word of over 100 characters is one unknown token, so
# that what lies behind the last counts for nothing but blanks.
_CHARACTERS_OF_A_TOKEN = (32, 128)
# What a word that the start ends within may become.
_LAST_WORD_TOKENS = 100


class TorchEncoder(Model):
    """Embeds the column `text` as `embedding` (FP32, width of the model).

    Files: `model.safetensors`, `tokenizer.json`, `config.json`.

    Parameters of the manifest:
        pooling: `mean` over the real tokens (default), or `cls`, the first of them.
        normalize: scale each vector to length 1 (default true).
        pad_side: `right` (default) or `left`; makes no difference to the answers.
        dtype: `fp32` (default) or `fp16`, which counts on CUDA only.
    """

    stack = True

    def load(self, context: LoadContext) -> None:
        """Load tokenizer and weights.

        Raises:
            StoreError: a parameter is unknown, or the files do not fit together.
        """
        torch.set_num_threads(context.threads)
        parameters = context.parameters
        self._pooling = _choice(parameters, "pooling", _POOLINGS)
        self._normalize = bool(parameters.get("normalize", True))
        self.pad_side = _choice(parameters, "pad_side", ("right", *_PAD_SIDES))
        self._device = context.device
        half = _choice(parameters, "dtype", _DTYPES) == "fp16" and context.device.startswith("cuda")
        self._encoder = BertEncoder(
            BertConfig.from_file(context.path("config.json")),
            load_file(context.path("model.safetensors")),
            context.device,
            torch.float16 if half else torch.float32,
        )
        positions = self._encoder.config.positions
        self._longest = min(context.limits.max_length or positions, positions)
        self._starts = [each * self._longest for each in _CHARACTERS_OF_A_TOKEN]
        self._tokenizer = _open_tokenizer(context, self._encoder.vocabulary_size)
        self.pad_value = self._tokenizer.token_to_id("[PAD]") or 0

    def preprocess(self, row: Row) -> Prepared:
        """Token ids of one text, cut or refused by the policy in force.

        Raises:
            ValueError: the text is empty or not valid Unicode.
            CallerError: `too_long`.
        """
        encoding, more = self._encode(_text_of(row))
        special = self._tokenizer.num_special_tokens_to_add(False)
        cut = tokens_to_cut(len(encoding) + special, self._longest, row.truncate, more=more)
        if cut:
            encoding.truncate(self._longest - special)
        ids = np.array(self._tokenizer.post_process(encoding).ids, np.int64)
        return Prepared({"ids": ids}, len(ids), cut)

    def predict(
        self,
        rows: Mapping[str, Any],
        context: PredictContext,  # noqa: ARG002 (Model's signature)
    ) -> list[dict[str, Any]]:
        """Embed one padded batch."""
        with torch.inference_mode():
            ids = torch.from_numpy(rows["ids"]).to(self._device)
            full = bool(rows["mask"].all())
            mask = None if full else torch.from_numpy(rows["mask"]).to(self._device)
            vectors = _pool(self._encoder(ids, mask).float(), mask, self._pooling)
            if self._normalize:
                vectors = F.normalize(vectors)
            return [{"embedding": vector} for vector in vectors.cpu().numpy()]

    def example(self, length: int) -> Row:
        """Words of one token each, with room for the special tokens."""
        words = max(
            1, min(length, self._longest) - self._tokenizer.num_special_tokens_to_add(False)
        )
        return Row({"text": " ".join(["time"] * words)})

    def _encode(self, text: str) -> tuple[Any, bool]:
        """The tokens of a text, or of its start, and whether there is more of it.

        Nobody needs the tokens of the megabytes behind those that the model takes. The start is
        taken again, four times as long, if it does not contain enough tokens.
        """
        for characters in self._starts:
            start = _start_of(text, characters)
            start.encode()  # lone surrogates, which a `str` can hold, are not Unicode text
            # Of the library's calls only those for many texts let other threads run meanwhile.
            (encoding,) = self._tokenizer.encode_batch_fast([start], add_special_tokens=False)
            if len(start) == len(text):
                return encoding, False
            if len(encoding) > self._longest + _LAST_WORD_TOKENS:
                break
        return encoding, True


def _choice(parameters: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    """A parameter that must be one of `allowed`, of which the first is the default."""
    value = parameters.get(name, allowed[0])
    if value not in allowed:
        raise StoreError(f"parameter {name} is {value!r}; use {' or '.join(sorted(set(allowed)))}")
    return str(value)


def _open_tokenizer(context: LoadContext, vocabulary_size: int) -> Any:
    tokenizer = Tokenizer.from_file(str(context.path("tokenizer.json")))
    # The file may ask for both, and a fixed padding would make each short text a long one.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if tokenizer.get_vocab_size() > vocabulary_size:
        raise StoreError("tokenizer.json has more tokens than model.safetensors")
    return tokenizer


def _text_of(row: Row) -> str:
    text = row.get("text")
    if isinstance(text, bytes):
        text = text.decode()
    if not isinstance(text, str) or not text:
        raise ValueError("the text of a row must not be empty")
    return text


def _start_of(text: str, characters: int) -> str:
    """A text up to the last blank before so many characters; all of it where it is shorter."""
    if len(text) <= characters:
        return text
    words = text[:characters].rsplit(maxsplit=1)
    return words[0] if words else ""


def _pool(hidden: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """One vector a row out of hidden states; padding counts for nothing."""
    if pooling == "cls":
        if mask is None:
            return hidden[:, 0]
        first = mask.int().argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), first]
    if mask is None:
        return hidden.mean(1)
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)
