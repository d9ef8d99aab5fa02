"""A run by its name: what is done on a stage, and how much of it there must be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of the matrix.

    Attributes:
        name: by which it can be run alone.
        play: does it, on a `Stage`; what it leaves open is collected after it.
        quick: whether it belongs to the part that every change has to pass.
        requests_min: a history with fewer requests fails.
    """

    name: str
    play: Callable[[Any], None]
    quick: bool = False
    requests_min: int = 8
