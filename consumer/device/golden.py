"""Golden examples: what a version must answer before it serves, and what it answered instead."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from ...models.manifest import Golden
from ...wire.codec import JSON, decode_body
from ...wire.errors import StoreError
from ...wire.tensors import Column, decode_columns
from ..link.protocol import Item
from .answering import encode_answer
from .loaded_models import LoadedModel, take_all
from .preparing import prepare
from .running import batch_of, keep_output, outputs_of

_DIGEST = "sha256:"


def check_golden(loaded: LoadedModel, examples: Sequence[Golden]) -> None:
    """Run the examples as requests and compare their answers.

    Raises:
        StoreError: an answer differs by more than its tolerance; the text says where and how far.
        RequestError: the model fails on an example.
    """
    for at, example in enumerate(examples):
        difference = _difference(example, _answer(loaded, example))
        if difference:
            raise StoreError(f"golden example {at} is not reproduced: {difference}")


def _answer(loaded: LoadedModel, example: Golden) -> bytes:
    item = Item(0, JSON, JSON, orjson.dumps(example.inputs), None, None, None)
    request = prepare(loaded, item)
    for row in take_all([request]):
        (output,) = outputs_of(loaded, batch_of(0, [row]))
        request.outputs[row.place] = keep_output(loaded, output)
    return encode_answer(loaded, request)


def _difference(example: Golden, answer: bytes) -> str:
    """What is wrong with an answer; empty where it is right."""
    if isinstance(example.outputs, str):
        digest = _DIGEST + hashlib.sha256(answer).hexdigest()
        return "" if digest == example.outputs else f"its digest is {digest}"
    expected = decode_columns(example.outputs)
    columns = decode_columns(decode_body(answer, JSON))
    if columns.keys() != expected.keys():
        return f"outputs are {sorted(columns)}, not {sorted(expected)}"
    for name, column in columns.items():
        if not _is_near(column, expected[name], example.tolerance):
            return f"output {name!r} differs by more than {example.tolerance:g}"
    return ""


def _is_near(column: Column, expected: Column, tolerance: float) -> bool:
    if isinstance(column, list) or isinstance(expected, list):
        return isinstance(column, list) and column == expected
    if column.shape != expected.shape:
        return False
    distance: Any = np.abs(column.astype(np.float64) - expected.astype(np.float64))
    return bool(distance.max(initial=0.0) <= tolerance)
