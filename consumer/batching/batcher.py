"""Which rows run next, as one batch. Pure: rows, limits, cost and time in, a decision out.

The head is the most urgent row. All rows that may share a batch with it are cut into batches so
that they wait least (`cutting.py`); the one that the head is in runs.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.deployment import Limits
from ...wire.keys import PRIORITIES
from .cost import CostCurve
from .cutting import CutCosts, cut_around

# A row may be overtaken by those that come in this many of its own run times after it: short ones
# do not wait behind every long one, and a long one knows how long it may have to. And only until
# what overtook it has taken this many: then it has paid enough for the others.
_PATIENCE = 10
_OVERTAKEN = 0.5
# Rows of which a batch is chosen, but for larger batches: more cost time and give nothing.
_CHOICE_ROWS_MAX = 256
_LEVEL = {priority: level for level, priority in enumerate(PRIORITIES)}


class WaitingRow(NamedTuple):
    """One prepared row.

    Attributes:
        request, row: its handle in the device process.
        length: exact, in tokens.
        key: parameters and kind; only rows with equal keys share a batch.
        level: 0 for the highest priority.
        rank_ms: when it counts as having arrived (monotonic); later rows of a large request count
            as later, so that they do not hold up everybody else.
        deadline_ms: monotonic.
        overtaken_ms: how long batches have taken that it waited for, and that came later.
    """

    request: int
    row: int
    length: int
    key: Hashable
    level: int
    rank_ms: float
    deadline_ms: float
    overtaken_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ChosenBatch:
    """Rows to run together, and why the batch ends where it does."""

    rows: tuple[WaitingRow, ...]
    release: str


def level_of(priority: str) -> int:
    """0 for the highest priority."""
    return _LEVEL.get(priority, len(_LEVEL))


def choose_batch(
    rows: Sequence[WaitingRow], now_ms: float, limits: Limits, cost: CostCurve
) -> ChosenBatch:
    """Cut the next batch from at least one waiting row; `limits` are those in force."""
    top = min(row.level for row in rows)
    own_ms = {length: cost.milliseconds(1, length) for length in {row.length for row in rows}}
    head = min(rows, key=lambda row: _urgency(row, top, now_ms, limits, own_ms[row.length]))
    alike = [row for row in rows if row.key == head.key]
    alike.sort(key=lambda row: (row.length, row.rank_ms, row is not head))
    at = alike.index(head)
    reach = max(_CHOICE_ROWS_MAX // 2, limits.max_batch_size)
    near = alike[max(0, at - reach) : at + reach]
    costs = CutCosts.of([row.length for row in near], limits, cost)
    start, end = cut_around(near.index(head), costs, len(rows))
    return ChosenBatch(tuple(near[start:end]), costs.why(start, end))


def rows_left(
    rows: Sequence[WaitingRow], batch: Sequence[WaitingRow], cost: CostCurve
) -> list[WaitingRow]:
    """The rows that wait on once a batch was cut; it overtakes those that are older than all of it.

    Rows of a lower priority than all of it would have waited anyway.
    """
    chosen = {(row.request, row.row) for row in batch}
    oldest_ms, lowest = min(row.rank_ms for row in batch), max(row.level for row in batch)
    run_ms = cost.milliseconds(len(batch), max(row.length for row in batch))
    return [
        row._replace(overtaken_ms=row.overtaken_ms + run_ms)
        if row.rank_ms < oldest_ms and row.level <= lowest
        else row
        for row in rows
        if (row.request, row.row) not in chosen
    ]


def _urgency(
    row: WaitingRow, top: int, now_ms: float, limits: Limits, own_ms: float
) -> tuple[int, float]:
    """Order of heads: priority, then when they should start; an aged row counts as of the highest.

    A row should start soon enough for its deadline, and as long after the age cap as it is slow to
    run, so that rows of like length with far deadlines are served in order of arrival. `top` is the
    highest priority that waits, `own_ms` what the row takes alone.
    """
    aged = now_ms - row.rank_ms >= limits.age_cap_ms
    patience_ms = _PATIENCE * own_ms if row.overtaken_ms < _OVERTAKEN * own_ms else 0.0
    due_ms = row.rank_ms + limits.age_cap_ms + patience_ms
    return (top if aged else row.level, min(row.deadline_ms - own_ms, due_ms))


_SMOOTH_MS = 50.0


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """Rows per millisecond, smoothed; a value that is replaced at each arrival."""

    per_ms: float = 0.0
    last_ms: float | None = None

    def after(self, rows: int, now_ms: float) -> "ArrivalRate":
        """The rate once `rows` more have arrived."""
        if self.last_ms is None:
            return ArrivalRate(0.0, now_ms)
        gap_ms = max(0.01, now_ms - self.last_ms)
        share = min(1.0, gap_ms / _SMOOTH_MS)
        return ArrivalRate(self.per_ms + share * (rows / gap_ms - self.per_ms), now_ms)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What may join the next batch: requests being prepared, and the rate of arrivals."""

    preparing: int
    rate: ArrivalRate


def linger_ms(
    rows: Sequence[WaitingRow], now_ms: float, limits: Limits, cost: CostCurve, arrivals: Arrivals
) -> float:
    """How long an idle device should wait for more rows; 0 = run now.

    It pays when at least two more rows are expected while the batch would run: they would wait for
    most of that run otherwise. The row that waits longest bounds the wait by `max_batch_delay_ms`;
    for requests that are being prepared already, by half the run time of what is there.
    """
    if not cost.known or limits.max_batch_delay_ms <= 0 or len(rows) >= limits.max_batch_size:
        return 0.0
    run_ms = cost.milliseconds(len(rows), max(row.length for row in rows))
    allowed_ms = 0.0
    if arrivals.preparing >= 2:
        allowed_ms = run_ms / 2
    rate = arrivals.rate
    if rate.per_ms * run_ms >= 2 and rate.per_ms * limits.max_batch_delay_ms >= 1:
        allowed_ms = max(allowed_ms, limits.max_batch_delay_ms)
    waited_ms = now_ms - min(row.rank_ms for row in rows)
    return max(0.0, allowed_ms - waited_ms)
