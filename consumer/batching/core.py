"""The worker's decisions: what to send to the device process next, and what has ended.

No I/O and no clock here. Whoever has news (entries taken, a message of the device process, a lost
device) calls in under the worker's one lock and gets back what to do.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from ...wire.deployment import VersionRecord
from ...wire.errors import ErrorKind
from ...wire.keys import member
from ...wire.work import WorkEntry
from ..link.protocol import (
    Answer,
    Answers,
    Done,
    Drop,
    Failure,
    Hello,
    Memory,
    Message,
    PreparedItem,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
    Run,
)
from . import dispatch
from .batcher import Company, WaitingRow, choose_batch, linger_ms
from .cost import CostCurve
from .device_queue import DeviceQueue
from .overrun import Overrun, overrun_beside, overrun_of_batch, overrun_of_load, overrun_of_one
from .state import EndedRequest, HeldRequest, Lane, Phase, Placement, RecoveredEntry, RunningBatch
from .suspects import Suspects

# Bytes sent to the device process and not prepared yet; beyond it, the rest waits here.
_CREDIT_BYTES = 32 * 1024 * 1024
# Bytes of inputs held; beyond it, nothing is taken, however few rows they are.
_HELD_BYTES = 64 * 1024 * 1024
# After the last version is loaded anew, suspects wait for so long: enough to serve what has waited.
_OTHERS_FIRST_MS = 250
_SMOOTH = 0.1
# What a batch counts for at least, so that lanes with free models still take turns.
_TURN_MS = 0.01


class Core:
    """Owns lanes, held requests and the running batch. Not safe for threads by itself."""

    def __init__(self, batches: Iterator[int] | None = None) -> None:
        """`batches` gives the numbers of batches; cores of one worker share it."""
        self.lanes: dict[int, Lane] = {}
        self.held: dict[int, HeldRequest] = {}
        self.ended: dict[int, HeldRequest] = {}  # not settled yet
        self.held_bytes = 0
        self.running: RunningBatch | None = None
        self.device_up = False
        self.fresh_until_ms = 0.0  # after it nothing new is started: the beat is too old
        self.look_again_ms: float | None = None
        self.unsettled_rows = 0  # ended, but the server would not take the answer yet
        self.progress_ms = 0.0  # when the device process last ended, or began, something
        self.suspects = Suspects()
        self._others_until_ms = 0.0  # suspects wait until then
        self.queue = DeviceQueue()
        self.is_greeted = False  # the device process has said its first word
        self._in_credit = 0
        self._next_request = 1
        self._batches = count(1) if batches is None else batches
        self._next_lane = 1

    # Lanes.

    def add_lane(self, model: str, record: VersionRecord) -> Lane:
        """A new lane, not loaded yet."""
        lane = Lane(self._next_lane, model, record)
        self._next_lane += 1
        self.lanes[lane.number] = lane
        return lane

    def begin_load(self, lane: Lane, now_ms: float) -> None:
        """A lane was sent to be loaded."""
        self.queue.add(lane, now_ms)

    def remove_lane(self, number: int) -> list[HeldRequest]:
        """Forget a lane; returns what it still held, which its owner hands back."""
        lane = self.lanes.pop(number)
        left = [held for held in self.held.values() if held.lane is lane]
        for held in left:
            self._forget(held)
        return left

    def hand_on(self, number: int) -> list[tuple[HeldRequest, bool]]:
        """Forget a lane that goes on in another core; returns what it held.

        With each request, whether it is a suspect. The device process must be gone.
        """
        held = [one for one in self.held.values() if one.lane.number == number]
        suspected = [(one, self.suspects.has(one)) for one in held]
        self.remove_lane(number)
        return suspected

    def take_on(self, lane: Lane, handed: Iterable[tuple[HeldRequest, bool]]) -> None:
        """Hold in a new lane what the one that it takes the place of held."""
        for held, is_suspect in handed:
            held.number, held.lane = self._next_request, lane
            self._next_request += 1
            self.held[held.number] = held
            self.held_bytes += len(held.entry.inputs)
            lane.weigh(held)
            if is_suspect:
                self.suspects.accuse(held)
            else:
                lane.waiting.append(held)

    def forget_settled(self, settled: Iterable[HeldRequest]) -> None:
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
        if not lane.ready or not self.device_up or self.held_bytes >= _HELD_BYTES:
            return 0
        if self.running is not None and lane.waiting and dispatch.is_cheap(lane):
            return 0  # the next batch is there; taking once a batch costs less than by driblets
        return 2 * lane.record.limits.max_batch_size - lane.held_rows - self.unsettled_rows

    def room_for_lost(self, lane: Lane) -> int:
        """Rows that may be taken over from lost workers: they have waited longest."""
        if not lane.ready or not self.device_up or self.held_bytes >= _HELD_BYTES:
            return 0
        return max(0, 4 * lane.record.limits.max_batch_size - lane.held_rows - self.unsettled_rows)

    def take(
        self,
        lane: Lane,
        entries: Sequence[tuple[Placement, WorkEntry]],
        now_ms: float,
        offset_ms: float,
    ) -> list[HeldRequest]:
        """Hold entries that were taken; `offset_ms` turns server time to monotonic time."""
        first = self._next_request
        if not lane.busy:
            lane.virtual_ms = max(lane.virtual_ms, self._least_virtual_ms())
        for placement, entry in entries:
            lane.waiting.append(self._hold(lane, placement, entry, now_ms, offset_ms))
        lane.rate = lane.rate.after(len(entries), now_ms)
        return [self.held[number] for number in range(first, self._next_request)]

    def _hold(
        self, lane: Lane, placement: Placement, entry: WorkEntry, now_ms: float, offset_ms: float
    ) -> HeldRequest:
        deadline_ms = entry.deadline_ms - offset_ms
        held = HeldRequest(self._next_request, entry, lane, placement, now_ms, deadline_ms)
        held.attempt = entry.attempt
        self._next_request += 1
        self.held[held.number] = held
        self.held_bytes += len(entry.inputs)
        lane.weigh(held)
        return held

    def take_over(
        self, lane: Lane, entries: Sequence[RecoveredEntry], now_ms: float, offset_ms: float
    ) -> list[EndedRequest]:
        """Hold entries of a lost worker; returns those that have ended too many processes.

        What was inside its device process runs apart here, since it may be what killed it; alone
        where this is its last try.
        """
        failures: list[Failure] = []
        for placement, entry, attempt, inside in entries:
            held = self._hold(lane, placement, entry, now_ms, offset_ms)
            held.attempt += attempt - 1
            most = lane.record.limits.max_attempts
            if attempt > most:
                text = f"{attempt - 1} workers were lost while it was in their device process"
                failures.append(Failure(held.number, ErrorKind.POISON.code, text, []))
            elif not inside:
                lane.waiting.append(held)
            elif attempt < most:
                self.suspects.accuse_together(held)
            else:
                self.suspects.accuse(held)
        return self.fail(failures)

    def inside(self, model: str) -> list[str]:
        """The requests of a model that are in the device process, as members of `due`."""
        return [
            member(held.entry.tenant, held.entry.id)
            for held in self.held.values()
            if held.lane.model == model and held.is_inside
        ]

    def _least_virtual_ms(self) -> float:
        return min((lane.virtual_ms for lane in self.lanes.values() if lane.busy), default=0.0)

    # What to send.

    def plan(self, now_ms: float) -> list[Message]:
        """What to send to the device process now; empty where there is nothing to do."""
        self.look_again_ms = None
        if not self.device_up or now_ms > self.fresh_until_ms:
            return []
        if self._are_suspects_next(now_ms):
            return self._plan_suspects(now_ms)
        if self.running is not None:
            return self._prepare_ahead(now_ms)
        direct = self._start_direct(now_ms)
        if direct is not None:
            return [direct, *self._prepare_ahead(now_ms)]
        prepares = self._prepare_ahead(now_ms)
        run = self._start_prepared(now_ms)
        return prepares if run is None else [run, *prepares]

    def _are_suspects_next(self, now_ms: float) -> bool:
        """Whether nothing but suspects goes to the device process now.

        After a loss all else that waits comes first, for a moment: the culprit among them may end
        the process again, and others must not wait for both. A version that crashes while it loads
        must not take suspects along.
        """
        if not self.suspects or self.suspects.is_inside:
            return bool(self.suspects)
        if self.unloaded_lanes() or any(lane.leaving for lane in self.lanes.values()):
            return False
        if now_ms < self._others_until_ms:
            self.look_again_ms = self._others_until_ms
            return False
        return True

    def _plan_suspects(self, now_ms: float) -> list[Message]:
        """Run suspects group by group, with nothing else in the device process.

        What was prepared before they came is run first: else it would stay inside. A group runs
        once all of it is prepared: those who wait for it have waited for a lease already, and a
        second run for the rest of it would be one run more.
        """
        if not self.suspects.is_inside and not self.count_inside():
            group = self.suspects.admit()
            return self._prepare(group[0].lane, group, now_ms)
        if self.suspects.is_inside and any(lane.preparing for lane in self.lanes.values()):
            return []
        run = self._start_prepared(now_ms) if self.running is None else None
        return [] if run is None else [run]

    def _start_direct(self, now_ms: float) -> Message | None:
        """Prepare and run in one message, where nothing is gained by knowing lengths first."""
        lanes = [lane for lane in self.lanes.values() if lane.waiting and dispatch.is_direct(lane)]
        if not lanes or any(lane.rows for lane in self.lanes.values()):
            return None
        lane = min(lanes, key=lambda lane: lane.virtual_ms)
        requests = dispatch.first_alike(lane)
        for _ in requests:
            lane.waiting.popleft()
        self._mark_preparing(lane, requests, now_ms)
        batch = self._begin(lane, (), requests, now_ms, dispatch.direct_release(lane, requests))
        return PrepareRun(batch.number, lane.number, [dispatch.item_of(held) for held in requests])

    def _start_prepared(self, now_ms: float) -> Message | None:
        lanes = [lane for lane in self.lanes.values() if lane.rows]
        if not lanes:
            return None
        lane = min(lanes, key=lambda lane: lane.virtual_ms)
        limits = lane.record.limits
        if not self._are_suspects_next(now_ms):
            company = Company(lane.preparing, lane.rate)
            wait_ms = linger_ms(lane.rows, now_ms, limits, lane.cost, company)
            if wait_ms > 0:
                self.look_again_ms = now_ms + wait_ms
                return None
        batch = choose_batch(lane.rows, now_ms, limits, lane.cost)
        chosen = {(row.request, row.row) for row in batch.rows}
        lane.rows = [row for row in lane.rows if (row.request, row.row) not in chosen]
        requests = [self.held[number] for number in {row.request for row in batch.rows}]
        release = "alone" if self.suspects.is_alone else batch.release
        running = self._begin(lane, batch.rows, requests, now_ms, release)
        return Run(running.number, lane.number, [(row.request, row.row) for row in batch.rows])

    def _begin(
        self,
        lane: Lane,
        rows: tuple[WaitingRow, ...],
        requests: Sequence[HeldRequest],
        now_ms: float,
        release: str,
    ) -> RunningBatch:
        for held in requests:
            held.started_ms = now_ms
        numbers = frozenset(held.number for held in requests)
        self.running = RunningBatch(next(self._batches), lane, rows, numbers, now_ms, release)
        self.progress_ms = now_ms
        self.queue.add(None, now_ms)
        return self.running

    def _prepare_ahead(self, now_ms: float) -> list[Message]:
        """Send what waits to be preprocessed while the device is busy, or to learn its lengths."""
        messages: list[Message] = []
        for lane in self.lanes.values():
            cheap = self.running is not None and dispatch.is_cheap(lane)
            if not lane.ready or not lane.waiting or cheap:
                continue
            requests: list[HeldRequest] = []
            credit = self._in_credit
            while lane.waiting and credit < _CREDIT_BYTES:
                held = lane.waiting.popleft()
                credit += len(held.entry.inputs)
                requests.append(held)
            if requests:
                messages += self._prepare(lane, requests, now_ms)
        return messages

    def _prepare(self, lane: Lane, requests: Sequence[HeldRequest], now_ms: float) -> list[Message]:
        self._mark_preparing(lane, requests, now_ms)
        return dispatch.prepare_messages(lane, requests)

    def _mark_preparing(self, lane: Lane, requests: Sequence[HeldRequest], now_ms: float) -> None:
        if not any(lane.preparing for lane in self.lanes.values()):
            self.progress_ms = max(self.progress_ms, now_ms)
        preparing = Phase.PREPARING
        by_ms = now_ms + dispatch.preparing_ms(self.lanes.values())
        for held in requests:
            by_ms += dispatch.allowed_ms(held)
            held.phase, held.prepare_by_ms = preparing, by_ms
            self._in_credit += len(held.entry.inputs)
        lane.preparing += len(requests)

    # What came back.

    def receive(self, message: Message, now_ms: float) -> list[EndedRequest]:
        """Take in a message of the device process; returns the requests that it ended."""
        if not isinstance(message, Memory):
            self.progress_ms = now_ms
        match message:
            case PreparedRows(items, failures):
                self._note_prepared(items)
                return self.fail(failures)
            case Done():
                self.queue.end_batch(now_ms)
                return self._note_done(message)
            case Answers(answers, failures):
                return self.fail(failures) + self._answer(answers)
            case Ready() | Refused():
                self._note_loaded(message, now_ms)
            case Hello():
                self.is_greeted = True
            case _:
                pass  # Memory concerns the link, not the decisions
        return []

    def _note_loaded(self, message: Ready | Refused, now_ms: float) -> None:
        self.queue.end_load(message.lane, now_ms)
        if self.running is not None:  # it waited behind the load, whose time is not its own
            self.running = replace(self.running, started_ms=now_ms)
        for held in self.held.values():  # it may have kept them waiting as well
            held.prepare_by_ms = max(held.prepare_by_ms, now_ms + dispatch.allowed_ms(held))
        lane = self.lanes.get(message.lane)
        if lane is None:
            return
        if self.suspects:
            self._others_until_ms = now_ms + _OTHERS_FIRST_MS
        if isinstance(message, Refused):
            lane.refusal = message.message
            return
        lane.ready = True
        lane.deaths = 0
        lane.lineage = message.lineage
        lane.cost = CostCurve.from_points(message.curve)

    def _note_prepared(self, items: Sequence[PreparedItem]) -> None:
        for item in items:
            held = self.held.get(item.request)
            if held is None or held.phase is not Phase.PREPARING:
                continue
            self._learn_lengths(held, item)
            held.lane.rows.extend(dispatch.waiting_rows(held))

    def _learn_lengths(self, held: HeldRequest, item: PreparedItem) -> None:
        lane = held.lane
        self._leave_preparing(held)
        held.phase = Phase.PREPARED
        _, held.lengths, held.truncated_tokens, held.preprocess_ms, held.kinds = item
        held.rows_left = len(held.lengths)
        lane.weigh(held)
        lane.preprocess_ms += _SMOOTH * (held.preprocess_ms - lane.preprocess_ms)

    def _leave_preparing(self, held: HeldRequest) -> None:
        held.lane.preparing -= 1
        self._in_credit -= len(held.entry.inputs)

    def _note_done(self, done: Done) -> list[EndedRequest]:
        batch, self.running = self.running, None
        if batch is None or batch.number != done.batch:
            return []
        batch.lane.virtual_ms += max(_TURN_MS, done.predict_ms)
        for item in done.prepared:
            held = self.held.get(item.request)
            if held is not None and held.phase is Phase.PREPARING:
                self._learn_lengths(held, item)
                if not done.rows:  # it broke a limit, or is of several kinds, and was not run
                    held.lane.rows.extend(dispatch.waiting_rows(held))
        longest = batch.charge(done, self.held)
        if longest and not done.failures:
            lane = batch.lane
            lane.cost = lane.cost.after(len(done.rows), longest, done.predict_ms)
        return self.fail(done.failures) + self._answer(done.answers)

    def _answer(self, answers: Sequence[Answer]) -> list[EndedRequest]:
        return [
            EndedRequest(held, answer) for answer in answers if (held := self._end(answer.request))
        ]

    def fail(self, failures: Sequence[Failure]) -> list[EndedRequest]:
        """End requests that failed, wherever they stand."""
        return [
            EndedRequest(held, None, one) for one in failures if (held := self._end(one.request))
        ]

    def _end(self, number: int) -> HeldRequest | None:
        """A request that is over and to be settled; None where it was forgotten before."""
        held = self.held.get(number)
        if held is not None:
            self._forget(held)
            self.ended[number] = held
            held.phase = Phase.ENDED
        return held

    def _forget(self, held: HeldRequest) -> None:
        lane, phase = held.lane, held.phase
        del self.held[held.number]
        self.held_bytes -= len(held.entry.inputs)
        if phase is Phase.PREPARED:
            if held.rows_left:
                lane.rows = [row for row in lane.rows if row.request != held.number]
        elif phase is Phase.PREPARING:
            self._leave_preparing(held)
        elif held in lane.waiting:
            lane.waiting.remove(held)
        lane.held_rows -= held.weight
        held.weight = 0
        if self.suspects:
            self.suspects.forget(held)

    # What goes wrong.

    def expire(self, now_ms: float) -> tuple[list[Message], list[EndedRequest]]:
        """Give up what is past its deadline and not on the device right now."""
        late = [
            held
            for held in self.held.values()
            if held.deadline_ms < now_ms and held.number not in self._on_device
        ]
        text = "the deadline passed before it could run"
        return self._give_up(late, ErrorKind.DEADLINE_EXCEEDED, text)

    def _give_up(
        self, some: Sequence[HeldRequest], kind: ErrorKind, text: str
    ) -> tuple[list[Message], list[EndedRequest]]:
        dropped = [held.number for held in some if held.phase is not Phase.WAITING]
        failures = [Failure(held.number, kind.code, text, []) for held in some]
        return ([Drop(dropped)] if dropped else []), self.fail(failures)

    @property
    def _on_device(self) -> frozenset[int]:
        """Numbers of the requests that run right now."""
        return self.running.requests if self.running is not None else frozenset()

    def not_begun(self, model: str, taken_before_ms: float) -> list[str]:
        """Requests of a model held for a while and not run yet, as members of `due`."""
        return [
            member(held.entry.tenant, held.entry.id)
            for held in self.held.values()
            if held.lane.model == model
            and held.taken_ms < taken_before_ms
            and held.number not in self._on_device
        ]

    def drop_closed(
        self, model: str, closed: Collection[str]
    ) -> tuple[list[Message], list[EndedRequest]]:
        """Give up requests that somebody else has ended, unless they are on the device.

        Their failures answer nobody: the gate is shut. They end the entries.
        """
        over = [
            held
            for held in self.held.values()
            if held.lane.model == model
            and held.number not in self._on_device
            and member(held.entry.tenant, held.entry.id) in closed
        ]
        return self._give_up(over, ErrorKind.CANCELLED, "it is over")

    def overrun(self, now_ms: float) -> Overrun | None:
        """Who has outrun a time limit, if anybody; the device process counts as hung then."""
        waiting = self.unloaded_lanes()
        if self.device_up and not self.is_greeted and waiting:  # it does not come up
            return overrun_of_load(waiting[0], now_ms - self.progress_ms)
        loading = self.queue.loading
        if loading is not None:
            return overrun_of_load(loading, now_ms - self.queue.since_ms)
        if self.running is not None:
            found = overrun_of_batch(self.running, now_ms)
        else:
            found = overrun_beside(self.held.values(), now_ms - self.progress_ms)
        return found or overrun_of_one(self.held.values(), now_ms, self._on_device)

    def unloaded_lanes(self) -> list[Lane]:
        """Lanes that are still to be loaded, or are being loaded."""
        return [lane for lane in self.lanes.values() if lane.is_unloaded]

    def at_work(self) -> list[Lane]:
        """Lanes whose code runs in the device process right now, each once."""
        on_device = self._on_device
        lanes = [
            held.lane
            for held in self.held.values()
            if held.number not in on_device and (held.phase is Phase.PREPARING or held.is_finishing)
        ]
        if self.queue.loading is not None:
            lanes.append(self.queue.loading)
        elif self.running is not None:
            lanes.append(self.running.lane)
        return list(dict.fromkeys(lanes))

    def count_inside(self) -> int:
        """How many requests are in the device process."""
        return sum(held.is_inside for held in self.held.values())

    def lose_device(self, kind: ErrorKind, message: str) -> list[EndedRequest]:
        """The device process is gone: whatever was inside runs again, alone.

        A request that was alone in it is the culprit and ends with `kind`.
        """
        self.device_up = self.is_greeted = False
        self.running = None
        self.queue.clear()
        inside = [held for held in self.held.values() if held.is_inside]
        for lane in self.lanes.values():
            lane.ready = False
            lane.rows = []
        culprit = self.suspects.lose()
        ended: list[EndedRequest] = []
        for held in inside:
            if held.phase is Phase.PREPARING:
                self._leave_preparing(held)
                held.phase = Phase.PREPARED
            if held is culprit:
                ended += self.fail([Failure(held.number, kind.code, message, [])])
            else:
                held.start_over()
                held.lane.weigh(held)
                self.suspects.accuse(held)
        return ended
