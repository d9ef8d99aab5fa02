"""Where waiting rows are cut into batches, so that all of them together wait least. Pure.

The rows lie in order of length, so that the batches of the best cut are neighbours in it. A batch
is waited for by its own rows and by those behind it: its milliseconds times how many these are is
what the cut keeps small. So rows that a larger batch would hardly make cheaper run in small ones,
which let others in between; where a batch has a price of its own and many wait, it gets large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...wire.deployment import AUTO_ROWS, Limits
from .cost import CostCurve

# For each row that waits here, one more waits in the queues or comes while these run: simulated,
# 1, 2 and 4 differ by less than 2 % but where rows are few (docs/decisions/0015).
_BEHIND = 2
# What a batch costs beside its run: the device waits for its message.
_BATCH_MS = 0.5


@dataclass(frozen=True, slots=True)
class CutCosts:
    """Milliseconds of every batch that could be cut: `ms[last, count - 1]`.

    `last` is the place of its longest row, `count` how many rows it has; inf where a limit forbids
    it. `forbidden` says by limit which those are. A single row is always allowed.
    """

    ms: NDArray[np.float64]
    forbidden: dict[str, NDArray[np.bool_]]

    @staticmethod
    def of(lengths: Sequence[int], limits: Limits, cost: CostCurve) -> "CutCosts":
        """Costs of batches of rows of these lengths, which rise."""
        longest = np.array(lengths, np.float64)
        counts = np.arange(1, min(len(lengths), limits.max_batch_size or AUTO_ROWS) + 1)
        ms = cost.matrix(len(counts), longest) + _BATCH_MS
        padded = longest[:, None] * counts
        forbidden = {}
        if limits.max_batch_tokens:
            forbidden["tokens"] = padded > limits.max_batch_tokens
        if limits.max_padding:
            sums = np.concatenate([[0.0], np.cumsum(longest)])
            ends = np.arange(1, len(lengths) + 1)[:, None]
            real = sums[ends] - sums[np.maximum(ends - counts, 0)]
            forbidden["padding"] = padded > limits.max_padding * real
        if cost.known:
            forbidden["time"] = ms > limits.max_batch_ms
        for mask in forbidden.values():
            mask[:, 0] = False
            ms[mask] = np.inf
        return CutCosts(ms, forbidden)

    def of_window(self, start: int, end: int) -> float:
        """Milliseconds of the rows from `start` up to `end`, which does not belong to it."""
        return float(self.ms[end - 1, end - start - 1])

    def why(self, start: int, end: int) -> str:
        """What keeps the next row, shorter or longer, out of a batch."""
        rows, most = self.ms.shape
        count = end - start
        if count == rows:
            return "idle"
        if count == most:
            return "full"
        lasts = ([end - 1] if start else []) + ([end] if end < rows else [])
        for name, mask in self.forbidden.items():
            if all(mask[last, count] for last in lasts):
                return name
        return "knee"


def cut_around(head: int, costs: CutCosts, waiting: int) -> tuple[int, int]:
    """The batch, as places from and up to, that the row at `head` runs in.

    `waiting` counts all rows that wait, those that cannot share a batch with these included.
    """
    bounds = _best_cut(costs, waiting)
    at = next(at for at, end in enumerate(bounds) if end > head)
    return _fill(at, bounds, costs, _BEHIND * waiting)


def _best_cut(costs: CutCosts, waiting: int) -> list[int]:
    """The ends of all batches of the cut that makes rows wait least, after a 0."""
    rows, most = costs.ms.shape
    weighed = costs.ms * (_BEHIND * waiting + np.arange(1, most + 1))
    from_largest = weighed[:, ::-1]
    least = np.zeros(rows + 1)
    starts = [0] * (rows + 1)
    for end in range(1, rows + 1):
        first = max(0, end - most)
        sums = least[first:end] + from_largest[end - 1, most - end + first :]
        best = int(sums.argmin())
        starts[end], least[end] = first + best, sums[best]
    bounds = [rows]
    while bounds[-1] > 0:
        bounds.append(starts[bounds[-1]])
    return bounds[::-1]


def _fill(at: int, bounds: Sequence[int], costs: CutCosts, behind: int) -> tuple[int, int]:
    """Add rows of the neighbours to a batch of the cut where that saves more than it delays.

    The cut shares rows evenly between batches as if none came after them. Those do come that fill
    up what is left over.
    """
    start, end = bounds[at - 1], bounds[at]
    share_ms = {
        place: costs.of_window(low, high) / (high - low)
        for low, high in pairwise(bounds)
        for place in range(low, high)
    }
    rows, most = costs.ms.shape
    while (count := end - start) < most:
        before_ms = costs.of_window(start, end)
        gains = []
        for low, high, place in ((start - 1, end, start - 1), (start, end + 1, end)):
            if low >= 0 and high <= rows:
                more_ms = costs.of_window(low, high) - before_ms
                saved_ms = share_ms[place] - more_ms
                gains.append((saved_ms * behind - more_ms * count, low, high))
        gain, low, high = max(gains)
        if gain <= 0:
            break
        start, end = low, high
    return start, end
