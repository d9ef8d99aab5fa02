"""What a batch costs: the curve measured at warm-up, read between its points. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

# Share of what one run teaches; a few runs are enough, and one that stumbled is soon forgotten.
_SMOOTH = 0.5


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Device milliseconds by (rows, longest row), linear between measured points.

    `lengths` rise; `series[i]` holds rising `(rows, milliseconds)` measured at `lengths[i]`.
    Without any point the cost is unknown and `milliseconds` returns 0. Of a slow model little is
    measured: beyond it the cost grows by `growth` of what the rows would add in proportion, and
    real runs teach it.
    """

    lengths: tuple[int, ...] = ()
    series: tuple[tuple[tuple[int, float], ...], ...] = ()
    growth: float = 1.0

    @staticmethod
    def from_points(points: Sequence[tuple[int, int, float]]) -> "CostCurve":
        """Make the curve from measured `(rows, length, milliseconds)` in any order."""
        by_length: dict[int, dict[int, float]] = {}
        for rows, length, ms in points:
            by_length.setdefault(length, {})[rows] = ms
        lengths = tuple(sorted(by_length))
        series = tuple(tuple(sorted(by_length[length].items())) for length in lengths)
        return CostCurve(lengths, series)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self.lengths)

    def after(self, rows: int, length: int, ms: float) -> "CostCurve":
        """The curve once a batch has run; the same one where so many rows were measured."""
        if not self.known or rows <= max(points[-1][0] for points in self.series):
            return self
        flat_ms = replace(self, growth=0.0).milliseconds(rows, length)
        steep_ms = replace(self, growth=1.0).milliseconds(rows, length)
        if steep_ms <= flat_ms:
            return self
        seen = min(1.0, max(0.0, (ms - flat_ms) / (steep_ms - flat_ms)))
        return replace(self, growth=self.growth + _SMOOTH * (seen - self.growth))

    def milliseconds(self, rows: int, length: int) -> float:
        """Estimated run time of `rows` rows padded to `length`."""
        if not self.lengths:
            return 0.0
        at = bisect_left(self.lengths, length)
        if at == 0:
            return self._along(self.series[0], rows)
        if at == len(self.lengths):
            # Beyond the longest measured row: in proportion to the tokens.
            return self._along(self.series[-1], rows) * length / max(1, self.lengths[-1])
        low, high = self.lengths[at - 1], self.lengths[at]
        share = (length - low) / (high - low)
        below = self._along(self.series[at - 1], rows)
        above = self._along(self.series[at], rows)
        return below + share * (above - below)

    def _along(self, points: tuple[tuple[int, float], ...], rows: int) -> float:
        """Read one series between its points; beyond them as `growth` says."""
        first_rows, first_ms = points[0]
        if rows <= first_rows:
            return first_ms
        for (low, low_ms), (high, high_ms) in pairwise(points):
            if rows <= high:
                return low_ms + (rows - low) / (high - low) * (high_ms - low_ms)
        last_rows, last_ms = points[-1]
        return last_ms + self.growth * (last_ms * rows / last_rows - last_ms)
