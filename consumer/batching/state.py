"""The nouns of a worker: requests in its hands, the lanes they run in, the batch on the device.

All of these are owned by `consumer/batching/core.py` and change under its lock only.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import NamedTuple

from ...broker.requests import weight_max
from ...wire.deployment import Limits, VersionRecord
from ...wire.keys import member
from ...wire.references import BLOB
from ...wire.work import WorkEntry
from ..link.protocol import Answer, Done, EngineInUse, Failure, Ready
from .batcher import ArrivalRate, WaitingRow
from .cost import CostCurve
from .row_limit import RowLimit

# Queues are long where their entries wait for as many batches.
_BACKLOG_BATCHES = 2


class Phase(Enum):
    """Where a held request stands."""

    WAITING = "waiting"  # in the main process only
    PREPARING = "preparing"  # sent to the device process, lengths not known yet
    PREPARED = "prepared"  # its rows wait in the device process, run, or have run
    ENDED = "ended"  # answered or failed, not settled yet


class Placement(NamedTuple):
    """What the name of the stream says about an entry."""

    level: int
    bucket: int


@dataclass(slots=True, eq=False)
class HeldRequest:
    """One request in this worker's hands. `taken_ms` and `deadline_ms` are monotonic."""

    number: int
    entry: WorkEntry
    lane: "Lane"
    placement: Placement
    taken_ms: float
    deadline_ms: float
    weight: int = 0  # rows that it counts for against room; `Lane.weigh` keeps it
    phase: Phase = Phase.WAITING
    attempt: int = 1  # runs, this one included; `entry.attempt` counts those before this worker
    lengths: Sequence[int] = ()
    kinds: Sequence[int] = ()
    rows_left: int = 0
    started_ms: float = 0.0
    prepare_by_ms: float = inf  # while it is being prepared: when that has taken too long
    preprocess_ms: float = 0.0
    predict_ms: float = 0.0
    device_ms: float = 0.0
    truncated_tokens: int = 0
    padded_tokens: int = 0
    batch: int = 0
    batch_rows: int = 0
    release: str = ""

    def start_over(self) -> None:
        """Back to the beginning after the device process was lost."""
        self.phase = Phase.WAITING
        self.attempt += 1
        self.lengths = self.kinds = ()
        self.rows_left = 0
        self.padded_tokens = 0
        self.device_ms = 0.0

    @property
    def is_inside(self) -> bool:
        """Whether the device process has it, and would take it along if it died."""
        return self.phase in (Phase.PREPARING, Phase.PREPARED)

    @property
    def is_finishing(self) -> bool:
        """Whether all its rows have run, and it is being postprocessed."""
        return self.phase is Phase.PREPARED and self.rows_left == 0

    @property
    def is_at_url(self) -> bool:
        """Whether the inputs lie at a URL, from which the device process fetches them."""
        return self.entry.inputs_at not in (None, BLOB)

    @property
    def member(self) -> str:
        """What the index `due` calls it."""
        return member(self.entry.tenant, self.entry.id)

    @property
    def rows(self) -> int:
        """Rows, exact once prepared, else as the entry says."""
        return len(self.lengths) or self.entry.rows


@dataclass(slots=True, eq=False)
class Lane:
    """One version of one model in the device process.

    `limits` are those of the record, with the rows of a full batch where that is left to us.
    `virtual_ms` is the device time it has had, for fair shares between lanes.
    """

    number: int
    model: str
    record: VersionRecord
    ready: bool = False
    was_ready: bool = False  # once, here
    refusal: str = ""
    is_reported: bool = False  # that it was refused
    losses: int = 0  # of the device process while it loaded this lane
    is_moving: bool = False  # it is to go on in a device process of its own
    is_draining: bool = False  # it takes nothing more, and goes once what it holds is answered
    is_handed_over: bool = False  # while it drains: what was taken of it is held, or over
    lineage: str = ""
    memory_bytes: int = 0  # by which its load has grown the process
    engine: EngineInUse | None = None  # None for a model that has nothing to choose from
    cost: CostCurve = field(default_factory=CostCurve)
    row_limit: RowLimit = field(default_factory=RowLimit)
    limits: Limits = field(init=False)
    waiting: deque[HeldRequest] = field(default_factory=deque)
    rows: list[WaitingRow] = field(default_factory=list)
    preparing: int = 0
    fetching: int = 0  # of those that are being prepared: inputs at URLs
    held_rows: int = 0
    virtual_ms: float = 0.0
    run_ms: float = 0.0  # of the last batch
    is_backlogged: bool = False  # what was taken last had waited in its queue for several batches
    preprocess_ms: float = 0.0  # mean of one request, smoothed
    rate: ArrivalRate = field(default_factory=ArrivalRate)

    def __post_init__(self) -> None:
        """Derive the limits in force."""
        self.adjust(self.record)

    def adjust(self, record: VersionRecord) -> None:
        """Take over a record."""
        self.record = record
        self._limit_rows(self.row_limit)

    def begin(self, word: Ready) -> None:
        """It is loaded and warm."""
        self.ready, self.was_ready, self.losses = True, True, 0
        self.lineage, self.memory_bytes = word.lineage, word.memory_bytes
        self.cost = CostCurve.from_points(word.curve)
        self.engine = next(iter(word.engines), None)
        self._limit_rows(RowLimit())

    def _limit_rows(self, row_limit: RowLimit) -> None:
        self.row_limit, self.limits = row_limit, self.record.limits
        if not self.limits.max_batch_size:
            self.limits = replace(self.limits, max_batch_size=row_limit.rows)

    def learn(self, rows: int, longest: int, predict_ms: float) -> None:
        """Learn from a batch that has run: what it costs, and whether larger ones would pay."""
        self.run_ms = predict_ms
        if rows >= self.limits.max_batch_size and self.cost.known and rows > 1:
            half_ms = self.cost.milliseconds(rows // 2, longest)
            gain = rows * half_ms / (rows // 2) / max(1e-6, predict_ms)
            self._limit_rows(self.row_limit.after(gain, is_backlogged=self.is_backlogged))
        self.cost = self.cost.after(rows, longest, predict_ms)

    @property
    def name(self) -> str:
        """Model and version."""
        return f"{self.model}/{self.version}"

    @property
    def is_unloaded(self) -> bool:
        """Whether it is still to be loaded here."""
        return not (self.ready or self.refusal or self.is_moving)

    @property
    def is_able(self) -> bool:
        """Whether it may take, where it has room."""
        return self.ready and not self.is_draining

    @property
    def version(self) -> str:
        """Name of the version."""
        return self.record.version

    @property
    def busy(self) -> bool:
        """Whether anything waits to be prepared or run."""
        return bool(self.waiting or self.rows or self.preparing)

    def note_queued(self, entries: Sequence["TakenEntry"], server_ms: float) -> None:
        """Learn from what is taken whether any worker has room: it would not have waited."""
        if entries:
            oldest_ms = min(taken.entry.accepted_ms for taken in entries)
            self.is_backlogged = 0 < _BACKLOG_BATCHES * self.run_ms < server_ms - oldest_ms

    def weigh(self, held: HeldRequest) -> None:
        """Count a request against room; again once its rows are known exactly.

        A large request counts for half a batch at most: it must not keep others out.
        """
        weight = self.weight_of(held)
        self.held_rows += weight - held.weight
        held.weight = weight

    def weight_of(self, held: HeldRequest) -> int:
        """Rows that a request counts for against room."""
        return min(held.rows, weight_max(self.record))


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """The batch on the device. `rows` is empty for requests sent unprepared."""

    number: int
    lane: Lane
    rows: tuple[WaitingRow, ...]
    requests: frozenset[int]
    started_ms: float
    release: str

    def charge(self, done: Done, held_requests: Mapping[int, HeldRequest]) -> int:
        """Write down for each request what this batch cost it; returns its longest row.

        0 where all its requests are gone.
        """
        rows = [
            (held, held.lengths[at])
            for number, at in done.rows
            if (held := held_requests.get(number)) is not None
        ]
        if not rows:
            return 0
        lengths = [length for _, length in rows]
        longest, tokens = max(lengths), sum(lengths)
        count, predict_ms = len(done.rows), done.predict_ms
        for held, length in rows:
            held.rows_left -= 1
            held.padded_tokens += longest
            held.predict_ms = predict_ms
            held.device_ms += predict_ms * length / tokens
            held.batch, held.batch_rows = self.number, count
            held.release = self.release
        return longest


class TakenEntry(NamedTuple):
    """A work entry that was taken from a queue, or over from a lost worker.

    `attempt` counts the runs that began, this one included. `inside`: it was in the lost worker's
    device process, which may have died of it.
    """

    placement: Placement
    entry: WorkEntry
    attempt: int = 1
    inside: bool = False


class EndedRequest(NamedTuple):
    """A request that is over and must be settled: an answer or a failure."""

    held: HeldRequest
    answer: Answer | None = None
    failure: Failure | None = None
