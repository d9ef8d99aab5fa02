"""How many rows make a full batch where no limit says so: found under traffic. Pure."""

from dataclasses import dataclass, replace
from math import inf

from ...wire.deployment import AUTO_ROWS
from .cost import GAIN

# Beyond it, the device waits longer for the choice of rows than a larger batch could save.
_ROWS_MAX = 256
# Share of the free memory that a batch may take.
_MEMORY_SHARE = 0.5
# Runs in a row that may fail to gain: one that stumbled proves nothing.
_MISSES_MAX = 3


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The rows of a full batch in force: `AUTO_ROWS`, doubled while runs of that size gain.

    `most` is what is known not to gain any more, and never tried again.
    """

    rows: int = AUTO_ROWS
    most: int = _ROWS_MAX
    misses: int = 0

    def after(self, gain: float, *, is_backlogged: bool, rows_free: float = inf) -> "RowLimit":
        """The limit once a full batch has run.

        `gain` is how much more it got done in a millisecond than half of it would have. It grows
        only where no worker has room for what waits, else rows are better shared; and where twice
        as many rows take no more than half of the memory that is free for `rows_free`.
        """
        if gain >= GAIN:
            twice = self.rows * 2
            grows = is_backlogged and twice <= min(self.most, _MEMORY_SHARE * rows_free)
            return RowLimit(twice if grows else self.rows, self.most)
        if self.misses + 1 < _MISSES_MAX:
            return replace(self, misses=self.misses + 1)
        rows = max(AUTO_ROWS, self.rows // 2)
        return RowLimit(rows, most=rows)
