"""Rows of different length → one padded array per name, for models with `stack = True`.

Only rows of one kind are stacked, so that none changes what another comes out as: numpy would give
all of them the widest datatype.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_SIDES = ("left", "right")
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def check_padding(pad_side: Any, pad_value: Any) -> None:
    """Hold a model's `pad_side` and `pad_value` against what they may be.

    Raises:
        ValueError: an unknown side, or a value that is no number.
    """
    if pad_side not in _SIDES:
        raise ValueError(f"pad_side is {pad_side!r}; use 'left' or 'right'")
    if not isinstance(pad_value, _NUMBERS):
        raise ValueError(f"pad_value is {pad_value!r}; it must be a number")  # noqa: TRY004


def arrays_of(value: Any) -> dict[str, Array]:
    """A prepared row as arrays.

    Raises:
        ValueError: no mapping, the name `mask`, or a value that makes no array.
    """
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise ValueError(f"with stack, a mapping name → array is expected, not {kind}")  # noqa: TRY004
    if "mask" in value:
        raise ValueError("with stack, no array may have the name 'mask'")
    return {name: _as_array(name, part) for name, part in value.items()}


def _as_array(name: Any, part: Any) -> Array:
    try:
        return np.asarray(part)
    except MemoryError:
        raise
    except Exception as error:  # tensors and users' classes raise what they like
        raise ValueError(f"{name!r} cannot be made an array: {type(error).__name__}") from error


def kind_of_row(arrays: Mapping[str, Array], length: int) -> int:
    """A digest of names, datatypes, ranks and trailing shapes, in this process.

    The first axis counts too where it is not the row's length, for nothing pads it. The width of
    texts does not: numpy widens them without changing them.
    """
    return digest(
        tuple(
            (name, _datatype(array.dtype), *_shape_of_kind(array.shape, length))
            for name, array in arrays.items()
        )
    )


def digest(kind: tuple[Any, ...]) -> int:
    """A kind as a number ≥ 0 that holds within this process."""
    return hash(kind) & 0x7FFF_FFFF_FFFF_FFFF


def _datatype(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "US":
        return dtype.kind
    return dtype.str if dtype.names is None else str(dtype)


def _shape_of_kind(shape: tuple[int, ...], length: int) -> tuple[int | None, ...]:
    return (None, *shape[1:]) if shape[:1] == (length,) else shape


def check_pad_value(arrays: Mapping[str, Array], length: int, pad_value: float) -> None:
    """Whether `pad_value` can stand in the arrays that would be padded.

    Raises:
        ValueError: an array's datatype cannot hold it.
    """
    if pad_value == 0:
        return
    for name, array in arrays.items():
        if array.shape[:1] == (length,) and not _holds(array.dtype, pad_value):
            raise ValueError(f"pad_value {pad_value} does not fit {name!r}, which is {array.dtype}")


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    if dtype.kind == "b":
        return value in (0, 1)
    is_finite = isinstance(value, int) or isfinite(value)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return is_finite and int(value) == value and bounds.min <= value <= bounds.max
    if dtype.kind == "f":
        return not is_finite or abs(value) <= float(np.finfo(dtype).max)
    return dtype.kind in "cO"


def stack_rows(
    rows: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    pad_side: str = "right",
    pad_value: float = 0,
) -> dict[str, Array]:
    """Pad and stack the arrays of prepared rows.

    Arrays whose first axis is the row's length are padded along it to the longest row; arrays of
    one and the same shape in all rows are stacked as they are. `mask` (bool, rows × longest) is
    true where a value is real. A `pad_value` of 0 stands for what is empty: 0, False or "".

    Raises:
        ValueError: no rows, names, datatypes or shapes that do not fit together, an unknown side,
            or a value that the datatype cannot hold.
    """
    if not rows or len(rows) != len(lengths):
        raise ValueError(f"{len(rows)} rows with {len(lengths)} lengths cannot be stacked")
    check_padding(pad_side, pad_value)
    arrays = [arrays_of(row) for row in rows]
    names = arrays[0].keys()
    if any(row.keys() != names for row in arrays):
        raise ValueError("all rows must have the same names")
    stacked = {
        name: _stack_column([row[name] for row in arrays], lengths, pad_side, pad_value)
        for name in names
    }
    stacked["mask"] = _mask(lengths, pad_side)
    return stacked


def _stack_column(
    arrays: list[Array], lengths: Sequence[int], pad_side: str, pad_value: float
) -> Array:
    first = arrays[0]
    if any(_datatype(array.dtype) != _datatype(first.dtype) for array in arrays):
        found = ", ".join(sorted({str(array.dtype) for array in arrays}))
        raise ValueError(f"arrays of different datatypes cannot be stacked: {found}")
    if all(array.shape == first.shape for array in arrays):
        return np.stack(arrays)
    tail = first.shape[1:]
    for array, length in zip(arrays, lengths, strict=True):
        if array.shape != (length, *tail):
            raise ValueError(f"an array of shape {array.shape} in a row of length {length}")
    longest = max(lengths)
    padded = np.zeros((len(arrays), longest, *tail), np.result_type(*arrays))
    if pad_value != 0:
        if not _holds(padded.dtype, pad_value):
            raise ValueError(f"pad_value {pad_value} does not fit {padded.dtype}")
        padded[...] = pad_value
    for at, array in enumerate(arrays):
        padded[at, _real(lengths[at], longest, pad_side)] = array
    return padded


def _mask(lengths: Sequence[int], pad_side: str) -> Array:
    longest = max(lengths)
    mask = np.zeros((len(lengths), longest), np.bool_)
    for at, length in enumerate(lengths):
        mask[at, _real(length, longest, pad_side)] = True
    return mask


def _real(length: int, longest: int, pad_side: str) -> slice:
    return slice(longest - length, longest) if pad_side == "left" else slice(0, length)
