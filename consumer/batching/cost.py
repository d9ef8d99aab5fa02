"""What a batch costs: the curve measured at warm-up, read between its points. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .seen_runs import SeenRuns

# From so much more work in the same time on, a larger batch is worth it.
GAIN = 1.05
# Share of what one run teaches; a few runs are enough, and one that stumbled is soon forgotten.
_SMOOTH = 0.5
# Of rows beside a single measured one: they add up, but for enough to find out.
_FIRST_GROWTH = 0.9
# Where nothing was measured, a batch counts as its padded tokens, and as many more.
_UNKNOWN_BATCH_TOKENS = 256

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Device milliseconds by (rows, longest row), linear between measured points.

    `lengths` rise; `series[i]` holds rising `(rows, milliseconds)` measured at `lengths[i]`.
    Beyond the last point of a length the line through the last two goes on. Of a slow model only
    one may be measured: there the cost grows by `growth` of what the rows would add in proportion,
    and real runs teach it. What they say of all else is in `seen`. Without any point the cost is
    unknown and `milliseconds` returns 0.
    """

    lengths: tuple[int, ...] = ()
    series: tuple[Points, ...] = ()
    growth: float = _FIRST_GROWTH
    seen: SeenRuns = field(default_factory=SeenRuns)

    @staticmethod
    def from_points(points: Sequence[tuple[int, int, float]]) -> "CostCurve":
        """Make the curve from measured `(rows, length, milliseconds)` in any order.

        Other work of the machine only adds time: no batch counts for more than a larger one took.
        """
        by_length: dict[int, dict[int, float]] = {}
        for rows, length, _ in points:
            larger = (ms for n, of, ms in points if n >= rows and of >= length)
            by_length.setdefault(length, {})[rows] = min(larger)
        lengths = tuple(sorted(by_length))
        series = tuple(tuple(sorted(by_length[length].items())) for length in lengths)
        return CostCurve(lengths, series)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self.lengths)

    def after(self, rows: int, length: int, ms: float) -> "CostCurve":
        """The curve once a batch has run."""
        if not self.known:
            return self
        flat_ms = replace(self, growth=0.0).measured_ms(rows, length)
        steep_ms = replace(self, growth=1.0).measured_ms(rows, length)
        if steep_ms <= flat_ms:
            points_ms = tuple(point_ms for points in self.series for _, point_ms in points)
            return replace(self, seen=self.seen.after(flat_ms, ms, points_ms))
        seen = min(1.0, max(0.0, (ms - flat_ms) / (steep_ms - flat_ms)))
        return replace(self, growth=self.growth + _SMOOTH * (seen - self.growth))

    def gain(self, rows: int) -> float:
        """How many times as much a batch of so many short rows gets done as two of half of them.

        1 where nothing was measured.
        """
        if not self.known or rows < 2:
            return 1.0
        shortest = self.lengths[0]
        halves_ms = 2 * self.milliseconds(rows // 2, shortest)
        return halves_ms / max(1e-6, self.milliseconds(rows, shortest))

    def milliseconds(self, rows: int, length: int) -> float:
        """Estimated run time of `rows` rows padded to `length`."""
        return self.seen.corrected(self.measured_ms(rows, length)) if self.lengths else 0.0

    def measured_ms(self, rows: int, length: int) -> float:
        """The same as far as the warm-up knows."""
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

    def matrix(self, rows: int, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimates of 1 up to `rows` rows, by length; comparable where nothing is known, too."""
        counts = np.arange(1, rows + 1)
        if not self.lengths:
            return lengths[:, None] * counts + _UNKNOWN_BATCH_TOKENS
        table = np.array([self._all_along(points, counts) for points in self.series])
        place = np.interp(lengths, self.lengths, np.arange(len(self.lengths)))
        low = place.astype(int)
        high = np.minimum(low + 1, len(table) - 1)
        share = (place - low)[:, None]
        beyond = np.maximum(1.0, lengths / max(1, self.lengths[-1]))[:, None]
        estimates = (table[low] * (1 - share) + table[high] * share) * beyond
        corrected: NDArray[np.float64] = self.seen.corrected_all(estimates)
        return corrected

    def _all_along(self, points: Points, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Read one series at many counts, which rise."""
        measured_rows, measured_ms = zip(*points, strict=True)
        last_rows, last_ms = points[-1]
        inside = np.interp(counts, measured_rows, measured_ms)
        more = last_ms + self._slope(points) * (counts - last_rows)
        return np.where(counts > last_rows, more, inside)

    def _along(self, points: Points, rows: int) -> float:
        """Read one series at one count."""
        first_rows, first_ms = points[0]
        if rows <= first_rows:
            return first_ms
        for (low, low_ms), (high, high_ms) in pairwise(points):
            if rows <= high:
                return low_ms + (rows - low) / (high - low) * (high_ms - low_ms)
        last_rows, last_ms = points[-1]
        return last_ms + self._slope(points) * (rows - last_rows)

    def _slope(self, points: Points) -> float:
        """Milliseconds that each row adds beyond the last point."""
        if len(points) == 1:
            rows, ms = points[0]
            return self.growth * ms / rows
        (low, low_ms), (high, high_ms) = points[-2:]
        return max(0.0, (high_ms - low_ms) / (high - low))
