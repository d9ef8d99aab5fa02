"""The worker's decisions: what to send to the device process next, and what has ended.

No I/O and no clock here. Whoever has news (entries taken, a message of the device process, a lost
device) calls in under the worker's one lock and gets back what to do.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..wire.deployment import VersionRecord
from ..wire.errors import ErrorKind
from ..wire.work import WorkEntry
from .batcher import Company, WaitingRow, choose_batch, linger_ms
from .cost import CostCurve
from .dispatch import direct_release, first_alike, is_cheap, is_direct, item_of, waiting_rows
from .held import Ended, Held, Lane, Phase, Placement, RunningBatch
from .overrun import overrun_beside, overrun_of_batch, overrun_of_load
from .protocol import (
    Answer,
    Answers,
    Done,
    Drop,
    Failure,
    Memory,
    Message,
    Prepare,
    PreparedItem,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
    Run,
)

# Bytes sent to the device process and not prepared yet; beyond it, the rest waits here.
_CREDIT_BYTES = 32 * 1024 * 1024
_SMOOTH = 0.1
_LOAD_TRIES = 2
# What a batch counts for at least, so that lanes with free models still take turns.
_TURN_MS = 0.01


class Core:
    """Owns lanes, held requests and the running batch. Not safe for threads by itself."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.held: dict[int, Held] = {}
        self.ended: dict[int, Held] = {}  # not settled yet
        self.running: RunningBatch | None = None
        self.device_up = False
        self.fresh_until_ms = 0.0  # after it nothing new is started: the beat is too old
        self.look_again_ms: float | None = None
        self.unsettled_rows = 0  # ended, but the server would not take the answer yet
        self.progress_ms = 0.0  # when the device process last ended, or began, something
        self._suspects: deque[Held] = deque()
        self._alone: Held | None = None
        self._in_credit = 0
        self._next_request = 1
        self._next_batch = 1
        self._next_lane = 1

    # Lanes.

    def add_lane(self, model: str, record: VersionRecord) -> Lane:
        """A new lane, not loaded yet."""
        lane = Lane(self._next_lane, model, record)
        self._next_lane += 1
        self.lanes[lane.number] = lane
        return lane

    def remove_lane(self, number: int) -> list[Held]:
        """Forget a lane; returns what it still held, which its owner hands back."""
        lane = self.lanes.pop(number)
        left = [held for held in self.held.values() if held.lane is lane]
        for held in left:
            self._forget(held)
        return left

    def forget_settled(self, settled: Iterable[Held]) -> None:
        """These requests' entries are over in the server."""
        for held in settled:
            self.ended.pop(held.number, None)

    def has_entry(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is held, or not settled yet. Asked after a lost answer only."""
        return any(
            held.entry.entry_id == entry_id and held.entry.stream == stream
            for held in (*self.held.values(), *self.ended.values())
        )

    def room(self, lane: Lane) -> int:
        """Rows that may be taken for a lane: one batch runs, one is prepared."""
        if not lane.ready or not self.device_up:
            return 0
        if self.running is not None and lane.waiting and is_cheap(lane):
            return 0  # the next batch is there; taking once a batch costs less than by driblets
        return 2 * lane.record.limits.max_batch_size - lane.held_rows - self.unsettled_rows

    def take(
        self,
        lane: Lane,
        entries: Sequence[tuple[Placement, WorkEntry]],
        now_ms: float,
        offset_ms: float,
    ) -> None:
        """Hold entries that were taken; `offset_ms` turns server time to monotonic time."""
        if not lane.busy:
            lane.virtual_ms = max(lane.virtual_ms, self._least_virtual_ms())
        for placement, entry in entries:
            held = Held(
                self._next_request, entry, lane, placement, now_ms, entry.deadline_ms - offset_ms
            )
            self._next_request += 1
            self.held[held.number] = held
            lane.weigh(held)
            lane.waiting.append(held)
        lane.rate = lane.rate.after(len(entries), now_ms)

    def _least_virtual_ms(self) -> float:
        return min((lane.virtual_ms for lane in self.lanes.values() if lane.busy), default=0.0)

    # What to send.

    def plan(self, now_ms: float) -> list[Message]:
        """What to send to the device process now; empty where there is nothing to do."""
        self.look_again_ms = None
        if not self.device_up or now_ms > self.fresh_until_ms:
            return []
        if self._alone is not None or self._suspects:
            return self._plan_alone(now_ms)
        if self.running is not None:
            return self._prepare_ahead(now_ms)
        direct = self._start_direct(now_ms)
        if direct is not None:
            return [direct, *self._prepare_ahead(now_ms)]
        prepares = self._prepare_ahead(now_ms)
        run = self._start_prepared(now_ms)
        return prepares if run is None else [run, *prepares]

    def _plan_alone(self, now_ms: float) -> list[Message]:
        """Run suspects one at a time, with nothing else in the device process."""
        if self._alone is None:
            if self._loading_lanes():
                return []  # a version that crashes while it loads must not take them along
            if any(held.phase in (Phase.PREPARING, Phase.PREPARED) for held in self.held.values()):
                return []
            self._alone = self._suspects.popleft()
            return [self._prepare(self._alone.lane, [self._alone], now_ms)]
        run = self._start_prepared(now_ms) if self.running is None else None
        return [] if run is None else [run]

    def _start_direct(self, now_ms: float) -> Message | None:
        """Prepare and run in one message, where nothing is gained by knowing lengths first."""
        lanes = [lane for lane in self.lanes.values() if lane.waiting and is_direct(lane)]
        if not lanes or any(lane.rows for lane in self.lanes.values()):
            return None
        lane = min(lanes, key=lambda lane: lane.virtual_ms)
        requests = first_alike(lane)
        for _ in requests:
            lane.waiting.popleft()
        self._mark_preparing(lane, requests, now_ms)
        batch = self._begin(lane, (), requests, now_ms, direct_release(lane, requests))
        return PrepareRun(batch.number, lane.number, [item_of(held) for held in requests])

    def _start_prepared(self, now_ms: float) -> Message | None:
        lanes = [lane for lane in self.lanes.values() if lane.rows]
        if not lanes:
            return None
        lane = min(lanes, key=lambda lane: lane.virtual_ms)
        limits = lane.record.limits
        if self._alone is None:
            company = Company(lane.preparing, lane.rate)
            wait_ms = linger_ms(lane.rows, now_ms, limits, lane.cost, company)
            if wait_ms > 0:
                self.look_again_ms = now_ms + wait_ms
                return None
        batch = choose_batch(lane.rows, now_ms, limits, lane.cost)
        chosen = {(row.request, row.row) for row in batch.rows}
        lane.rows = [row for row in lane.rows if (row.request, row.row) not in chosen]
        requests = [self.held[number] for number in {row.request for row in batch.rows}]
        release = "alone" if self._alone is not None else batch.release
        running = self._begin(lane, batch.rows, requests, now_ms, release)
        return Run(running.number, lane.number, [(row.request, row.row) for row in batch.rows])

    def _begin(
        self,
        lane: Lane,
        rows: tuple[WaitingRow, ...],
        requests: Sequence[Held],
        now_ms: float,
        release: str,
    ) -> RunningBatch:
        for held in requests:
            held.started_ms = now_ms
        numbers = frozenset(held.number for held in requests)
        self.running = RunningBatch(self._next_batch, lane, rows, numbers, now_ms, release)
        self._next_batch += 1
        self.progress_ms = now_ms
        return self.running

    def _prepare_ahead(self, now_ms: float) -> list[Message]:
        """Send what waits to be preprocessed while the device is busy, or to learn its lengths."""
        messages: list[Message] = []
        for lane in self.lanes.values():
            cheap = self.running is not None and is_cheap(lane)
            if not lane.ready or not lane.waiting or cheap:
                continue
            requests: list[Held] = []
            credit = self._in_credit
            while lane.waiting and credit < _CREDIT_BYTES:
                held = lane.waiting.popleft()
                credit += len(held.entry.inputs)
                requests.append(held)
            if requests:
                messages.append(self._prepare(lane, requests, now_ms))
        return messages

    def _prepare(self, lane: Lane, requests: Sequence[Held], now_ms: float) -> Message:
        self._mark_preparing(lane, requests, now_ms)
        return Prepare(lane.number, [item_of(held) for held in requests])

    def _mark_preparing(self, lane: Lane, requests: Sequence[Held], now_ms: float) -> None:
        if not any(lane.preparing for lane in self.lanes.values()):
            self.progress_ms = max(self.progress_ms, now_ms)
        preparing = Phase.PREPARING
        for held in requests:
            held.phase = preparing
            self._in_credit += len(held.entry.inputs)
        lane.preparing += len(requests)

    # What came back.

    def receive(self, message: Message, now_ms: float) -> list[Ended]:
        """Take in a message of the device process; returns the requests that it ended."""
        if not isinstance(message, Memory):
            self.progress_ms = now_ms
        match message:
            case PreparedRows(items, failures):
                self._note_prepared(items)
                return self._fail(failures)
            case Done():
                return self._note_done(message)
            case Answers(answers, failures):
                return self._fail(failures) + self._answer(answers)
            case Ready() | Refused():
                self._note_loaded(message, now_ms)
            case _:
                pass  # Hello and Memory concern the link, not the decisions
        return []

    def _note_loaded(self, message: Ready | Refused, now_ms: float) -> None:
        if self.running is not None:  # it waited behind the load, whose time is not its own
            self.running = replace(self.running, started_ms=now_ms)
        lane = self.lanes.get(message.lane)
        if lane is None:
            return
        if isinstance(message, Refused):
            lane.refusal = message.message
            return
        lane.ready = True
        lane.lineage = message.lineage
        lane.cost = CostCurve.from_points(message.curve)

    def _note_prepared(self, items: Sequence[PreparedItem]) -> None:
        for item in items:
            held = self.held.get(item.request)
            if held is None or held.phase is not Phase.PREPARING:
                continue
            self._learn_lengths(held, item)
            held.lane.rows.extend(waiting_rows(held))

    def _learn_lengths(self, held: Held, item: PreparedItem) -> None:
        lane = held.lane
        self._leave_preparing(held)
        held.phase = Phase.PREPARED
        _, held.lengths, held.truncated_tokens, held.preprocess_ms = item
        held.rows_left = len(held.lengths)
        lane.weigh(held)
        lane.preprocess_ms += _SMOOTH * (held.preprocess_ms - lane.preprocess_ms)

    def _leave_preparing(self, held: Held) -> None:
        held.lane.preparing -= 1
        self._in_credit -= len(held.entry.inputs)

    def _note_done(self, done: Done) -> list[Ended]:
        batch, self.running = self.running, None
        if batch is None or batch.number != done.batch:
            return []
        batch.lane.virtual_ms += max(_TURN_MS, done.predict_ms)
        for item in done.prepared:
            held = self.held.get(item.request)
            if held is not None and held.phase is Phase.PREPARING:
                self._learn_lengths(held, item)
                if not done.rows:  # it broke a limit and was not run
                    held.lane.rows.extend(waiting_rows(held))
        batch.charge(done, self.held)
        return self._fail(done.failures) + self._answer(done.answers)

    def _answer(self, answers: Sequence[Answer]) -> list[Ended]:
        return [Ended(held, answer) for answer in answers if (held := self._end(answer.request))]

    def _fail(self, failures: Sequence[Failure]) -> list[Ended]:
        return [Ended(held, None, one) for one in failures if (held := self._end(one.request))]

    def _end(self, number: int) -> Held | None:
        """A request that is over and to be settled; None where it was forgotten before."""
        held = self.held.get(number)
        if held is not None:
            self._forget(held)
            self.ended[number] = held
            held.phase = Phase.ENDED
        return held

    def _forget(self, held: Held) -> None:
        lane, phase = held.lane, held.phase
        del self.held[held.number]
        if phase is Phase.PREPARED:
            if held.rows_left:
                lane.rows = [row for row in lane.rows if row.request != held.number]
        elif phase is Phase.PREPARING:
            self._leave_preparing(held)
        elif held in lane.waiting:
            lane.waiting.remove(held)
        lane.held_rows -= held.weight
        held.weight = 0
        if held is self._alone:
            self._alone = None
        elif held in self._suspects:
            self._suspects.remove(held)

    # What goes wrong.

    def expire(self, now_ms: float) -> tuple[list[Message], list[Ended]]:
        """Give up what is past its deadline and not on the device right now."""
        on_device = self.running.requests if self.running is not None else frozenset()
        late = [
            held
            for held in self.held.values()
            if held.deadline_ms < now_ms and held.number not in on_device
        ]
        dropped = [held.number for held in late if held.phase is not Phase.WAITING]
        kind = ErrorKind.DEADLINE_EXCEEDED
        failures = [
            Failure(held.number, kind.code, "the deadline passed before it could run", [])
            for held in late
        ]
        return ([Drop(dropped)] if dropped else []), self._fail(failures)

    def overrun(self, now_ms: float) -> str | None:
        """Which stage has outrun its time limit, if any; the device process counts as hung then."""
        loading = self._loading_lanes()
        if loading:
            return overrun_of_load(loading[0], now_ms - self.progress_ms)
        if self.running is not None:
            return overrun_of_batch(self.running, now_ms)
        return overrun_beside(self.held.values(), now_ms - self.progress_ms)

    def _blame_loading(self, message: str) -> None:
        """A version that ended the device process twice while it was loaded is refused.

        Lanes are loaded in the order of their numbers, so the first that is not ready was at it.
        """
        loading = self._loading_lanes()
        if loading:
            loading[0].deaths += 1
            if loading[0].deaths >= _LOAD_TRIES:
                loading[0].refusal = f"while it was loaded, {message}"

    def _loading_lanes(self) -> list[Lane]:
        return [lane for lane in self.lanes.values() if not lane.ready and not lane.refusal]

    def lose_device(self, kind: ErrorKind, message: str) -> list[Ended]:
        """The device process is gone: whatever was inside runs again, alone.

        A request that was alone in it is the culprit and ends with `kind`.
        """
        self.device_up = False
        self.running = None
        inside = [h for h in self.held.values() if h.phase in (Phase.PREPARING, Phase.PREPARED)]
        if not inside:
            self._blame_loading(message)
        for lane in self.lanes.values():
            lane.ready = False
            lane.rows = []
        culprit, self._alone = self._alone, None
        ended: list[Ended] = []
        for held in inside:
            if held.phase is Phase.PREPARING:
                self._leave_preparing(held)
                held.phase = Phase.PREPARED
            if held is culprit:
                ended += self._fail([Failure(held.number, kind.code, message, [])])
            else:
                held.start_over()
                held.lane.weigh(held)
                self._suspects.append(held)
        return ended
