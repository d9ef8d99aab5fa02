"""What real runs say of the measured curve: a line from its estimates to what runs took. Pure.

Warm-up measures each point a few times, perhaps while other programs keep the machine busy. Then
the price of a batch beside that of its rows is off, which decides how large batches get; hundreds
of runs tell it better.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Share that all earlier runs keep with each run: some hundred count.
_KEPT = 0.99
# The curve itself counts for about as many runs, spread over all that it estimates.
_TRUSTED_RUNS = 5.0
# A run that took so many times as long as was expected tells of something else.
_OUTLIER = 4.0
_SCALE_MIN = 0.05
# However runs differ, a batch counts for this much of the estimate at least.
_SHARE_MIN = 0.2


@dataclass(frozen=True, slots=True)
class SeenRuns:
    """`offset_ms + scale × estimate` fits the runs best, each weighed by its own length.

    The sums are of weights w, of w·x, w·x², w·y and w·x·y, where x is the estimate and y what was
    seen; empty before the first run.
    """

    sums: tuple[float, ...] = ()
    offset_ms: float = 0.0
    scale: float = 1.0

    def corrected(self, estimate_ms: float) -> float:
        """What a batch of this estimate takes."""
        return max(_SHARE_MIN * estimate_ms, self.offset_ms + self.scale * estimate_ms)

    def corrected_all(self, estimates_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same of many."""
        line_ms = self.offset_ms + self.scale * estimates_ms
        return np.maximum(_SHARE_MIN * estimates_ms, line_ms)

    def after(self, estimate_ms: float, ms: float, points_ms: tuple[float, ...]) -> "SeenRuns":
        """The line once one more run was seen; `points_ms` are all that were measured."""
        if estimate_ms <= 0:
            return self
        sums = self.sums or _trusted(points_ms)
        seen_ms = min(ms, _OUTLIER * self.corrected(estimate_ms))
        latest = _terms(estimate_ms, seen_ms)
        sums = tuple(_KEPT * old + new for old, new in zip(sums, latest, strict=True))
        w, x, xx, y, xy = sums
        spread = w * xx - x * x
        if spread <= 1e-9 * w * xx:  # all of one size, which says nothing of others
            return SeenRuns(sums, 0.0, y / x)
        scale = max(_SCALE_MIN, (w * xy - x * y) / spread)
        return SeenRuns(sums, (y - scale * x) / w, scale)


def _terms(estimate_ms: float, ms: float) -> tuple[float, ...]:
    weight = 1 / estimate_ms**2
    share = ms / estimate_ms
    return (weight, 1 / estimate_ms, 1.0, weight * ms, share)


def _trusted(points_ms: tuple[float, ...]) -> tuple[float, ...]:
    each = _TRUSTED_RUNS / len(points_ms)
    terms = [_terms(ms, ms) for ms in points_ms if ms > 0]
    return tuple(each * sum(column) for column in zip(*terms, strict=True)) or (0.0,) * 5
