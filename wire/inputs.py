"""What a Python caller passes as inputs, and its form on the wire.

A list of numbers has no width of its own: it travels without a datatype and gets that of the
version's signature. An array has one, which nobody changes. What would mean something else once it
is there (a mask, a unit, a number that does not fit) is refused by name.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .codec import MSGPACK, is_number_of_json
from .errors import ErrorKind, RequestError
from .numbers import shown_value
from .tensors import check_tensor_name, count_rows, datatype_of, encode_columns

Array = npt.NDArray[Any]

_AXES_MAX = 8
_NUMBERS = (int, float, np.generic)
_TEXT_KINDS = "UST"
# These hold nothing but their values. Others know more: a mask, a unit, a time zone.
_PLAIN_ARRAYS = (np.ndarray, np.memmap, np.matrix)
_SEQUENCES = (list, tuple, range, deque)


class Numbers(NamedTuple):
    """Numbers of Python in row-major order, out of lists nested as deep as `shape`."""

    shape: list[int]
    flat: list[Any]

    def __len__(self) -> int:
        return self.shape[0]


Given = Array | Numbers | list[str] | list[bytes]


def _bad(message: str, *rows: int) -> RequestError:
    return RequestError.of(ErrorKind.BAD_INPUTS, message, rows=rows)


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
        _check_plain("input", inputs)
        inputs = inputs.tolist() if inputs.dtype.kind in "UT" else {"input": inputs}
    if isinstance(inputs, Mapping):
        columns = {check_tensor_name(name): _to_column(name, one) for name, one in inputs.items()}
        return _encode_columns(columns, content_type)
    if isinstance(inputs, list | tuple):
        if not inputs:
            raise _bad("inputs must be at least one row, not an empty list")
        if all(isinstance(item, str) for item in inputs):
            return {"text": _check_texts("text", inputs)}, len(inputs)
    raise _bad(
        "inputs must be text, a list of texts, an array, or a mapping name → array, texts, "
        f"numbers; not {_kind(inputs)}"
    )


def _encode_columns(columns: Mapping[str, Given], content_type: str) -> tuple[Any, int]:
    if not columns:
        raise _bad("inputs contain no tensor")
    body = [_encode(name, column, content_type) for name, column in columns.items()]
    return body, count_rows(columns)


def _encode(name: str, column: Given, content_type: str) -> dict[str, Any]:
    if not len(column):
        raise _without_rows(name)
    if isinstance(column, Numbers):
        return {"name": name, "shape": column.shape, "data": column.flat}
    return encode_columns({name: column}, content_type)[0]


def _without_rows(name: str) -> RequestError:
    return _bad(f"tensor {name!r} has no rows: its first axis must count them")


def _to_column(name: str, column: Any) -> Given:
    items = [column] if isinstance(column, str | bytes) else column
    if not isinstance(items, _SEQUENCES):
        if isinstance(items, _NUMBERS):
            raise _without_rows(name)
        array = _to_array(name, items)
        if not array.ndim:
            raise _without_rows(name)
        if array.dtype.kind not in _TEXT_KINDS:
            return array
        items = array.tolist()
    shape, flat = _flatten(name, items)
    kinds = set(map(type, flat))
    if any(issubclass(kind, str | bytes) for kind in kinds):
        return _to_strings(name, shape, flat)
    if len(kinds) == 1 and isinstance(flat[0], np.generic):
        return _to_array(name, np.array(flat)).reshape(shape)
    if all(issubclass(kind, _NUMBERS) for kind in kinds):
        return Numbers(shape, _to_numbers(name, shape[0], flat))
    for item in flat:
        if isinstance(item, np.ndarray):  # named before what stands beside it
            _check_plain(name, item)
    return _stack(name, shape, [_to_array(name, item) for item in flat])


def _flatten(name: str, items: Iterable[Any]) -> tuple[list[int], list[Any]]:
    """Shape of nested lists, and what they hold in row-major order."""
    flat = list(items)
    shape = [len(flat)]
    while any(issubclass(kind, _SEQUENCES) for kind in set(map(type, flat))):
        widths = {len(item) if isinstance(item, _SEQUENCES) else None for item in flat}
        if len(widths) > 1:
            raise _bad(f"tensor {name!r} is ragged")
        if len(shape) == _AXES_MAX:
            raise _bad(f"tensor {name!r} has more than {_AXES_MAX} axes")
        shape.append(len(flat[0]))
        flat = list(chain.from_iterable(flat))
    return shape, flat


def _to_strings(name: str, shape: list[int], flat: list[Any]) -> list[str] | list[bytes]:
    if len(shape) > 1:
        raise _bad(f"tensor {name!r} of texts must have one axis, a text for each row")
    if all(isinstance(item, str) for item in flat):
        return _check_texts(name, flat)
    if all(isinstance(item, bytes) for item in flat):
        return flat
    raise _bad(f"tensor {name!r} must hold strings or bytes, not both and nothing else")


def _to_numbers(name: str, rows: int, flat: list[Any]) -> list[Any]:
    """Numbers in Python's own types, whatever they were; each keeps its exact value."""
    if _are_plain(flat):
        return flat
    numbers = [item.item() if isinstance(item, np.generic) else item for item in flat]
    for at, number in enumerate(numbers):
        if not isinstance(number, int | float):
            raise _bad(f"tensor {name!r} holds {_kind(number)} among numbers")
        if not is_number_of_json(number):
            is_whole = isinstance(number, int)
            what = (
                "an integer beyond 64 bits"
                if is_whole
                else "NaN or infinity in a list; pass an array"
            )
            raise _bad(f"tensor {name!r} holds {what}", at * rows // len(flat))
    return numbers


def _are_plain(flat: list[Any]) -> bool:
    """Whether all are of one type of Python's own, and fit: most lists, at a tenth of the cost."""
    kinds = set(map(type, flat))
    if kinds == {int}:
        return is_number_of_json(min(flat)) and is_number_of_json(max(flat))
    return kinds == {float} and all(map(isfinite, flat))


def _to_array(name: str, item: Any) -> Array:
    """What stands for an array, or an element of one, as an array that has a datatype."""
    if not _is_array_like(item):
        raise _bad(
            f"tensor {name!r} holds {_kind(item)}; pass an array, or lists of numbers or of texts"
        )
    try:
        array: Array = np.asanyarray(item)
    except Exception as error:  # foreign code may raise anything
        raise _bad(
            f"tensor {name!r}: {_kind(item)} is not an array of numbers: {shown_value(error)}; "
            "pass a NumPy array (for a PyTorch tensor: `.detach().float().cpu().numpy()`)"
        ) from error
    _check_plain(name, array)
    if array.dtype.kind not in _TEXT_KINDS:
        try:
            datatype_of(array.dtype)
        except ValueError as error:
            remedy = "convert it, e.g. with `.astype('float32')` or `.tolist()`"
            raise _bad(f"tensor {name!r}: {error}; {remedy}") from error
    return array


def _is_array_like(item: Any) -> bool:
    """Whether numpy reads it as numbers; raw bytes hold none."""
    if hasattr(item, "__array__") or hasattr(item, "__array_interface__"):
        return True
    try:
        return not isinstance(item, bytearray) and memoryview(item).format not in ("B", "c")
    except TypeError:
        return False


def _check_plain(name: str, array: Array) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise _bad(
            f"tensor {name!r} is a masked array, whose mask would be lost: pass `.filled(value)`, "
            "and the mask as a tensor of its own"
        )
    if type(array) not in _PLAIN_ARRAYS:
        raise _bad(f"tensor {name!r} is {_kind(array)}; pass a plain array: `numpy.asarray(…)`")


def _stack(name: str, shape: list[int], arrays: list[Array]) -> Array:
    if len({array.dtype for array in arrays}) > 1:
        raise _bad(f"tensor {name!r} holds arrays of different datatypes")
    if len({array.shape for array in arrays}) > 1:
        raise _bad(f"tensor {name!r} is ragged")
    stacked = np.stack([np.asarray(array) for array in arrays])
    return stacked.reshape(*shape, *stacked.shape[1:])


def _kind(value: Any) -> str:
    """What something is, in words."""
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _check_texts(name: str, texts: Iterable[str]) -> list[str]:
    checked = list(texts)
    for at, text in enumerate(checked):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _bad(f"tensor {name!r} holds a lone surrogate", at) from error
    return checked
