"""Rows of different length → one padded array per name, for models with `stack = True`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def stack_rows(
    rows: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    pad_side: str = "right",
    pad_value: float = 0,
) -> dict[str, Array]:
    """Pad and stack the arrays of prepared rows.

    Arrays whose first axis is the row's length are padded along it to the longest row; arrays of
    one and the same shape in all rows are stacked as they are. `mask` (bool, rows × longest) is
    true where a value is real.

    Raises:
        ValueError: no rows, names or shapes that do not fit together, or an unknown side.
    """
    if not rows or len(rows) != len(lengths):
        raise ValueError(f"{len(rows)} rows with {len(lengths)} lengths cannot be stacked")
    if pad_side not in ("left", "right"):
        raise ValueError(f"pad_side is {pad_side!r}; use 'left' or 'right'")
    names = set(rows[0])
    if "mask" in names or any(set(row) != names for row in rows):
        raise ValueError("all rows must have the same names, and none the name 'mask'")
    stacked = {
        name: _stack_column([np.asarray(row[name]) for row in rows], lengths, pad_side, pad_value)
        for name in rows[0]
    }
    stacked["mask"] = _mask(lengths, pad_side)
    return stacked


def _stack_column(
    arrays: list[Array], lengths: Sequence[int], pad_side: str, pad_value: float
) -> Array:
    if all(array.shape == arrays[0].shape for array in arrays):
        return np.stack(arrays)
    tail = arrays[0].shape[1:]
    for array, length in zip(arrays, lengths, strict=True):
        if array.shape != (length, *tail):
            raise ValueError(f"an array of shape {array.shape} in a row of length {length}")
    longest = max(lengths)
    padded = np.full((len(arrays), longest, *tail), pad_value, arrays[0].dtype)
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
