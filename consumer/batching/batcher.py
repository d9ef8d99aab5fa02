"""Which rows run next, as one batch. Pure: rows, limits, cost and time in, a decision out.

The head is the most urgent row. Around it gather the rows nearest to it in exact length, as long as
rows, tokens, padding and estimated time stay within the limits. Of the batches that can be cut this
way, the largest one that is nearly as efficient as the best is taken: beyond it, each further row
costs more than it would in a batch of its own kind.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.deployment import Limits
from ...wire.keys import PRIORITIES
from .cost import CostCurve

# A batch this close to the best real-tokens-per-millisecond counts as equally good: the curve is
# not known better than that.
_NEARLY = 0.95
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
    """

    request: int
    row: int
    length: int
    key: Hashable
    level: int
    rank_ms: float
    deadline_ms: float


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
    """Cut the next batch from at least one waiting row."""
    head = min(rows, key=lambda row: _urgency(row, now_ms, limits, cost))
    near = sorted(
        (row for row in rows if row.key == head.key),
        key=lambda row: (row is not head, abs(row.length - head.length), row.rank_ms),
    )
    count, release = _admissible(near, limits, cost)
    if cost.known and count > 1:
        best = _knee(near[:count], cost)
        if best < count:
            count, release = best, "knee"
    return ChosenBatch(tuple(near[:count]), release)


def _urgency(row: WaitingRow, now_ms: float, limits: Limits, cost: CostCurve) -> tuple[int, float]:
    """Order of heads: priority, then the least slack; a row that has aged counts as the highest.

    Slack runs out when the row must start to meet its deadline, or when it has waited for
    `age_cap_ms`, so that rows with far deadlines are served in order of arrival.
    """
    aged = now_ms - row.rank_ms >= limits.age_cap_ms
    latest_start_ms = row.deadline_ms - cost.milliseconds(1, row.length)
    return (0 if aged else row.level, min(latest_start_ms, row.rank_ms + limits.age_cap_ms))


def _admissible(near: Sequence[WaitingRow], limits: Limits, cost: CostCurve) -> tuple[int, str]:
    """How many of `near`, in order, the limits let into one batch, and which limit ended it."""
    longest = tokens = 0
    for count, row in enumerate(near):
        longest = max(longest, row.length)
        tokens += row.length
        after = count + 1
        if count == 0:
            continue
        if after > limits.max_batch_size:
            return count, "full"
        if longest * after > limits.max_batch_tokens:
            return count, "tokens"
        if longest * after > limits.max_padding * tokens:
            return count, "padding"
        if cost.known and cost.milliseconds(after, longest) > limits.max_batch_ms:
            return count, "time"
    return len(near), "idle"


def _knee(near: Sequence[WaitingRow], cost: CostCurve) -> int:
    """The largest count whose real tokens per millisecond come close to the best."""
    longest = tokens = 0
    rates = []
    for count, row in enumerate(near, start=1):
        longest = max(longest, row.length)
        tokens += row.length
        rates.append(tokens / max(1e-6, cost.milliseconds(count, longest)))
    enough = _NEARLY * max(rates)
    return max(count for count, rate in enumerate(rates, start=1) if rate >= enough)


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
