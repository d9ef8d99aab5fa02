"""Golden examples: what a version must answer before it serves, and what it answered instead."""

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from ...models.likeness import likeness_of
from ...models.manifest import Golden
from ...wire.codec import JSON, decode_body
from ...wire.deployment import EXACT
from ...wire.errors import StoreError
from ...wire.tensors import decode_columns
from ..link.protocol import Item
from .answering import encode_answer
from .loaded_models import LoadedModel, take_all
from .preparing import prepare
from .running import batch_of, keep_output, outputs_of

_DIGEST = "sha256:"


def check_golden(loaded: LoadedModel, examples: Sequence[Golden], precision: str) -> None:
    """Run the examples as requests and hold their answers against the bound of a precision.

    Raises:
        StoreError: an answer is not as near as that; the text says where and how far.
        RequestError: the model fails on an example.
    """
    for at, example in enumerate(examples):
        answer = answer_to(loaded, example.inputs)
        loaded.pace.pause()
        difference = _difference(example, answer, precision)
        if difference:
            raise StoreError(f"golden example {at} is not reproduced: {difference}")


def answer_to(loaded: LoadedModel, inputs: Any) -> bytes:
    """The outputs (JSON) of a request with these inputs in wire form, each row run alone.

    Raises:
        RequestError: the model fails on a row.
    """
    item = Item(0, JSON, JSON, orjson.dumps(inputs), None, None, None)
    request = prepare(loaded, item)
    for row in take_all([request]):
        (output,) = outputs_of(loaded, batch_of(0, [row]))
        request.outputs[row.place] = keep_output(loaded, output)
    return encode_answer(loaded, request)


def _difference(example: Golden, answer: bytes, precision: str) -> str:
    """What is wrong with an answer; empty where it is right.

    An example that is given by its digest has to be reproduced to the last bit.
    """
    if isinstance(example.outputs, str):
        digest = _DIGEST + hashlib.sha256(answer).hexdigest()
        return "" if digest == example.outputs else f"its digest is {digest}"
    expected = decode_columns(example.outputs)
    columns = decode_columns(decode_body(answer, JSON))
    if columns.keys() != expected.keys():
        return f"outputs are {sorted(columns)}, not {sorted(expected)}"
    for name, column in columns.items():
        likeness = likeness_of({name: column}, {name: expected[name]})
        if precision == EXACT and likeness.difference > example.tolerance:
            return f"output {name!r} differs by more than {example.tolerance:g}"
        if precision != EXACT and likeness.cosine < example.judged:
            return f"output {name!r} is less like than {example.judged:g}: {likeness}"
    return ""
