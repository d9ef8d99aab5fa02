"""What a Python caller passes as inputs, and its form on the wire.

A list of numbers has no width of its own: it travels without a datatype and gets that of the
version's signature. An array has one, which nobody changes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .codec import MSGPACK
from .errors import ErrorKind, RequestError
from .tensors import check_tensor_name, count_rows, encode_columns

_NUMBERS = (bool, int, float)


class Numbers(NamedTuple):
    """A list of Python numbers, nested evenly."""

    array: npt.NDArray[Any]


Given = npt.NDArray[Any] | Numbers | list[str] | list[bytes]


def _bad(message: str) -> RequestError:
    return RequestError.of(ErrorKind.BAD_INPUTS, message)


def encode_inputs(inputs: Any, content_type: str = MSGPACK) -> tuple[Any, int]:
    """Wire form and number of rows of what a Python caller passes as inputs.

    Args:
        inputs: a text, a list of texts, an array (first axis = rows), or a mapping name → array,
            list of numbers, text or list of texts.
        content_type: what the wire form will be encoded in.

    Raises:
        CallerError: `bad_inputs` where it cannot be put on the wire.
    """
    if isinstance(inputs, str):
        return {"text": _check_texts("text", [inputs])}, 1
    if isinstance(inputs, np.ndarray):
        inputs = inputs.tolist() if inputs.dtype.kind == "U" else {"input": inputs}
    if isinstance(inputs, Mapping):
        columns = {check_tensor_name(name): _to_column(name, one) for name, one in inputs.items()}
        return _encode_columns(columns, content_type)
    if isinstance(inputs, list | tuple):
        if not inputs:
            raise _bad("inputs must be at least one row, not an empty list")
        if all(isinstance(item, str) for item in inputs):
            return {"text": _check_texts("text", list(inputs))}, len(inputs)
    raise _bad(
        "inputs must be text, a list of texts, an array, or a mapping name → array, texts, numbers"
    )


def _encode_columns(columns: Mapping[str, Given], content_type: str) -> tuple[Any, int]:
    if not columns:
        raise _bad("inputs hold no tensor")
    arrays = {name: one.array if isinstance(one, Numbers) else one for name, one in columns.items()}
    for name, column in arrays.items():
        if isinstance(column, np.ndarray) and not (column.ndim and len(column)):
            raise _bad(f"tensor {name!r} has no rows: its first axis must count them")
    try:
        body = [_encode(name, column, content_type) for name, column in columns.items()]
    except ValueError as error:
        raise _bad(str(error)) from error
    return body, count_rows(arrays)


def _encode(name: str, column: Given, content_type: str) -> dict[str, Any]:
    if not isinstance(column, Numbers):
        return encode_columns({name: column}, content_type)[0]
    array = column.array
    if content_type != MSGPACK and not np.isfinite(array).all():
        return encode_columns({name: array}, content_type)[0]  # a list in JSON cannot hold it
    return {"name": name, "shape": list(array.shape), "data": array.reshape(-1).tolist()}


def _to_column(name: str, column: Any) -> Given:
    items = [column] if isinstance(column, str | bytes) else column
    if isinstance(items, np.ndarray) and items.dtype.kind in "US" and items.ndim == 1:
        items = items.tolist()
    if isinstance(items, np.ndarray):
        return items
    if isinstance(items, list | tuple) and items and isinstance(items[0], str | bytes):
        if all(isinstance(item, str) for item in items):
            return _check_texts(name, list(items))
        if all(isinstance(item, bytes) for item in items):
            return list(items)
        raise _bad(f"tensor {name!r} must hold strings or bytes, not both and nothing else")
    try:
        array = np.asarray(items)
    except ValueError as error:
        raise _bad(f"tensor {name!r} is ragged") from error
    return Numbers(array) if _is_of_numbers(items) and array.dtype.kind in "bif" else array


def _is_of_numbers(column: Any) -> bool:
    """Whether the first element of nested lists is a number of Python's own."""
    while isinstance(column, list | tuple) and column:
        column = column[0]
    return type(column) in _NUMBERS


def _check_texts(name: str, texts: list[str]) -> list[str]:
    for at, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            what = f"tensor {name!r} holds a lone surrogate"
            raise RequestError.of(ErrorKind.BAD_INPUTS, what, rows=(at,)) from error
    return texts
