"""How like two answers are: the bounds that a golden example or an engine is held to. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from ..wire.tensors import Array, Column


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like the rows of an answer are to those expected, the worst of all.

    Attributes:
        difference: largest absolute difference of any number.
        cosine: smallest cosine of two rows of several numbers. A single number counts with
            1 less the difference ÷ the larger of both and 1; whole numbers and texts count with
            1 where equal, else 0.
    """

    difference: float = 0.0
    cosine: float = 1.0

    def __str__(self) -> str:
        return f"largest difference {self.difference:.1e}, least cosine {self.cosine:.6f}"

    def with_other(self, other: "Likeness") -> "Likeness":
        """The worse of both."""
        return Likeness(max(self.difference, other.difference), min(self.cosine, other.cosine))


_NOT_ALIKE = Likeness(inf, 0.0)


def worst(all_of: Iterable[Likeness]) -> Likeness:
    """The worst of all; that of equals where there are none."""
    found = Likeness()
    for one in all_of:
        found = found.with_other(one)
    return found


def likeness_of(columns: Mapping[str, Column], expected: Mapping[str, Column]) -> Likeness:
    """How like answers are; nothing is like an answer of other names, shapes or kinds."""
    if columns.keys() != expected.keys():
        return _NOT_ALIKE
    return worst(_of_column(column, expected[name]) for name, column in columns.items())


def _of_column(column: Column, expected: Column) -> Likeness:
    if isinstance(column, list) or isinstance(expected, list):
        alike = isinstance(column, list) and column == expected
        return Likeness() if alike else _NOT_ALIKE
    if column.shape != expected.shape:
        return _NOT_ALIKE
    if not len(column):
        return Likeness()
    one = column.reshape(len(column), -1).astype(np.float64)
    other = expected.reshape(len(expected), -1).astype(np.float64)
    difference = float(np.abs(one - other).max(initial=0.0))
    if np.isnan(difference):
        return _NOT_ALIKE
    if not np.issubdtype(expected.dtype, np.floating):
        return Likeness(difference, float(difference == 0))
    return Likeness(difference, float(_cosines(one, other).min(initial=1.0)))


def _cosines(rows: Array, expected: Array) -> Array:
    """For each row, its cosine with the expected one."""
    if rows.shape[1] == 1:
        largest = np.maximum(np.maximum(np.abs(rows), np.abs(expected)), 1.0)
        shares: Array = 1.0 - np.abs(rows - expected) / largest
        return shares
    # A row of zeros has no direction: it is like another one, and like nothing else.
    equal = (rows == expected).all(axis=1)
    cosines: Array = equal.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(expected, axis=1)
    products = np.einsum("ij,ij->i", rows, expected)
    np.divide(products, lengths, out=cosines, where=(lengths > 0) & ~equal)
    return cosines
