"""The worker's decisions: what to send to the device process next, and what has ended.

No I/O and no clock here. Threads with news (entries taken, a message of the device process, a lost
device) call in under the worker's one lock. What ends lies in `requests.unsettled` then.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from ...wire.deployment import VersionRecord
from ...wire.errors import ErrorKind
from ..link.protocol import (
    Answers,
    Begun,
    Done,
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
from . import dispatch, overrun
from .batcher import Arrivals, WaitingRow, choose_batch, linger_ms
from .cost import GAIN
from .device_queue import DeviceQueue
from .held_requests import HeldRequests
from .overrun import Overrun
from .state import HeldRequest, Lane, Phase, RunningBatch, TakenEntry
from .suspects import Suspects

# Bytes sent to the device process and not prepared yet; beyond it, the rest waits here.
_PREPARING_BYTES_MAX = 32 * 1024 * 1024
# Bytes of inputs held; beyond it, nothing is taken, however few rows they are.
_HELD_BYTES_MAX = 64 * 1024 * 1024
# So long suspects wait after the last version is loaded again: enough to serve what has waited.
_OTHERS_FIRST_MS = 250
# What a batch counts for at least, so that lanes with free models still take turns.
_TURN_MS = 0.01


class Core:
    """Owns lanes, held requests and the running batch. Not safe for threads by itself."""

    def __init__(self, batches: Iterator[int] | None = None) -> None:
        """`batches` gives the numbers of batches; cores of one worker share it."""
        self.lanes: dict[int, Lane] = {}
        self.suspects = Suspects()
        self.requests = HeldRequests(self.suspects)
        self.queue = DeviceQueue()
        self.running: RunningBatch | None = None
        self.device_up = False
        self.is_greeted = False  # the device process has said its first word
        self.fresh_until_ms = 0.0  # after it nothing new is started: the beat is too old
        self.look_again_ms: float | None = None
        self.progress_ms = 0.0  # when the device process last ended, or began, something
        self._others_until_ms = 0.0  # suspects wait until then
        self._batches = count(1) if batches is None else batches
        self._next_lane = 1

    # Lanes.

    def open_lane(self, model: str, record: VersionRecord) -> Lane:
        """A new lane, not loaded yet."""
        lane = Lane(self._next_lane, model, record)
        self._next_lane += 1
        self.lanes[lane.number] = lane
        return lane

    def drop_lane(self, lane: Lane) -> list[HeldRequest]:
        """Forget a lane; returns what it still held."""
        del self.lanes[lane.number]
        left = self.requests.of_lane(lane)
        for held in left:
            self.requests.forget(held)
        return left

    def move_lane_out(self, lane: Lane) -> list[tuple[HeldRequest, bool]]:
        """Forget a lane that moves to another core; returns what it held.

        With each request, whether it is a suspect. The device process must be gone.
        """
        moved = [(held, self.suspects.has(held)) for held in self.requests.of_lane(lane)]
        self.drop_lane(lane)
        return moved

    def move_lane_in(self, lane: Lane, moved: Iterable[tuple[HeldRequest, bool]]) -> None:
        """Hold in a new lane what the one that it takes the place of held."""
        for held, is_suspect in moved:
            self.requests.adopt(held, lane)
            if is_suspect:
                self.suspects.add_alone(held)
            else:
                lane.waiting.append(held)

    def unloaded_lanes(self) -> list[Lane]:
        """Lanes that are still to be loaded, or are being loaded."""
        return [lane for lane in self.lanes.values() if lane.is_unloaded]

    # What is taken.

    def room(self, lane: Lane, now_ms: float) -> int:
        """Rows that may be taken for a lane: one batch runs, one is prepared.

        Where large batches are cheaper, and no worker has room, it is four, so that there are more
        alike to choose from.
        """
        if self.running is not None and lane.waiting and dispatch.is_cheap(lane):
            return 0  # the next batch is there; taking once a batch costs less than by driblets
        gains = lane.is_backlogged and lane.cost.gain(lane.limits.max_batch_size) >= GAIN
        return self._room(lane, now_ms, batches=4 if gains else 2)

    def room_for_lost(self, lane: Lane, now_ms: float) -> int:
        """Rows that may be taken over from lost workers: they have waited longest."""
        return self._room(lane, now_ms, batches=4)

    def _room(self, lane: Lane, now_ms: float, *, batches: int) -> int:
        can_take = lane.is_able and self.device_up
        if not can_take or self.requests.input_bytes >= _HELD_BYTES_MAX:
            return 0
        rows = lane.held_rows + self.requests.refused_rows(lane)
        rows -= self.requests.slowly_fetched_rows(lane, now_ms)
        return max(0, batches * lane.limits.max_batch_size - rows)

    def take(
        self, lane: Lane, entries: Sequence[TakenEntry], now_ms: float, offset_ms: float
    ) -> list[HeldRequest]:
        """Hold entries of a queue; `offset_ms` turns server time to monotonic time."""
        if not lane.busy:
            lane.virtual_ms = max(lane.virtual_ms, self._least_virtual_ms())
        requests = [self.requests.add(lane, taken, now_ms, offset_ms) for taken in entries]
        lane.waiting.extend(requests)
        lane.note_queued(entries, now_ms + offset_ms)
        lane.rate = lane.rate.after(len(requests), now_ms)
        return requests

    def take_over(
        self, lane: Lane, entries: Sequence[TakenEntry], now_ms: float, offset_ms: float
    ) -> None:
        """Hold entries of a lost worker, and fail those that have ended too many processes.

        What was inside its device process runs apart here, since it may be what killed it; alone
        where this is its last try.
        """
        most = lane.record.limits.max_attempts
        for taken in entries:
            held, attempt = self.requests.add(lane, taken, now_ms, offset_ms), taken.attempt
            if attempt > most:
                text = f"{attempt - 1} workers were lost while it was in their device process"
                self.requests.fail_one(held, ErrorKind.POISON, text)
            elif not taken.inside:
                lane.waiting.append(held)
            elif attempt < most:
                self.suspects.add_to_group(held)
            else:
                self.suspects.add_alone(held)

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
        if self.unloaded_lanes() or any(lane.is_moving for lane in self.lanes.values()):
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
        if not self.suspects.is_inside and not self.requests.inside():
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
        self._begin_preparing(requests, now_ms)
        batch = self._begin(lane, (), requests, now_ms, dispatch.direct_release(lane, requests))
        return PrepareRun(batch.number, lane.number, [dispatch.item_of(held) for held in requests])

    def _start_prepared(self, now_ms: float) -> Message | None:
        lanes = [lane for lane in self.lanes.values() if lane.rows]
        if not lanes:
            return None
        lane = min(lanes, key=lambda lane: lane.virtual_ms)
        limits = lane.limits
        if not self._are_suspects_next(now_ms):
            arrivals = Arrivals(lane.preparing - lane.fetching, lane.rate)
            wait_ms = linger_ms(lane.rows, now_ms, limits, lane.cost, arrivals)
            if wait_ms > 0:
                self.look_again_ms = now_ms + wait_ms
                return None
        batch = choose_batch(lane.rows, now_ms, limits, lane.cost)
        chosen = {(row.request, row.row) for row in batch.rows}
        lane.rows = [row for row in lane.rows if (row.request, row.row) not in chosen]
        requests = [self.requests.held[number] for number in {row.request for row in batch.rows}]
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
            sent_bytes = self.requests.preparing_bytes
            while lane.waiting and sent_bytes < _PREPARING_BYTES_MAX:
                held = lane.waiting.popleft()
                sent_bytes += len(held.entry.inputs)
                requests.append(held)
            if requests:
                messages += self._prepare(lane, requests, now_ms)
        return messages

    def _prepare(self, lane: Lane, requests: Sequence[HeldRequest], now_ms: float) -> list[Message]:
        self._begin_preparing(requests, now_ms)
        return dispatch.prepare_messages(lane, requests)

    def _begin_preparing(self, requests: Sequence[HeldRequest], now_ms: float) -> None:
        if not any(lane.preparing for lane in self.lanes.values()):
            self.progress_ms = max(self.progress_ms, now_ms)
        by_ms = now_ms + dispatch.preparing_ms(self.lanes.values())
        fetched_by_ms = now_ms + dispatch.fetching_ms(self.lanes.values())
        for held in requests:
            if held.is_at_url:
                fetched_by_ms += dispatch.allowed_ms(held)
                self.requests.begin_preparing(held, fetched_by_ms)
            else:
                by_ms += dispatch.allowed_ms(held)
                self.requests.begin_preparing(held, by_ms)

    # What came back.

    def receive(self, message: Message, now_ms: float) -> None:
        """Take in a message of the device process."""
        if not isinstance(message, Memory):
            self.progress_ms = now_ms
        match message:
            case PreparedRows(items, failures):
                self._note_prepared(items)
                self.requests.fail(failures)
            case Begun():
                self.queue.begin_batch(now_ms)
                self._restart_clock(now_ms)
            case Done():
                self.queue.end_batch(now_ms)
                self._note_done(message)
            case Answers(answers, failures):
                self.requests.fail(failures)
                self.requests.answer(answers)
            case Ready() | Refused():
                self._note_loaded(message, now_ms)
            case Hello():
                self.is_greeted = True

    def _restart_clock(self, now_ms: float) -> None:
        """The running batch has waited behind a load, whose time is not its own."""
        if self.running is not None:
            self.running = replace(self.running, started_ms=now_ms)

    def _note_loaded(self, message: Ready | Refused, now_ms: float) -> None:
        self.queue.end_load(message.lane, now_ms)
        self._restart_clock(now_ms)
        for held in self.requests.held.values():  # it may have kept them waiting as well
            held.prepare_by_ms = max(held.prepare_by_ms, now_ms + dispatch.allowed_ms(held))
        lane = self.lanes.get(message.lane)
        if lane is None:
            return
        if self.suspects:
            self._others_until_ms = now_ms + _OTHERS_FIRST_MS
        if isinstance(message, Refused):
            lane.refusal = message.message
            return
        lane.begin(message)

    def _note_prepared(self, items: Sequence[PreparedItem]) -> None:
        for item in items:
            held = self.requests.note_prepared(item)
            if held is not None:
                held.lane.rows.extend(dispatch.waiting_rows(held))

    def _note_done(self, done: Done) -> None:
        batch, self.running = self.running, None
        if batch is None or batch.number != done.batch:
            return
        batch.lane.virtual_ms += max(_TURN_MS, done.predict_ms)
        for item in done.prepared:
            held = self.requests.note_prepared(item)
            # Where nothing ran, it broke a limit or is of several kinds.
            if held is not None and not done.rows:
                held.lane.rows.extend(dispatch.waiting_rows(held))
        longest = batch.charge(done, self.requests.held)
        if longest and not done.failures:
            batch.lane.learn(len(done.rows), longest, done.predict_ms)
        self.requests.fail(done.failures)
        self.requests.answer(done.answers)

    # What goes wrong.

    def expire(self, now_ms: float) -> list[Message]:
        """Give up what is past its deadline and not on the device right now."""
        late = [held for held in self._not_on_device() if held.deadline_ms < now_ms]
        text = "the deadline passed before it could run"
        return self.requests.give_up(late, ErrorKind.DEADLINE_EXCEEDED, text)

    def not_begun(self, model: str, taken_before_ms: float) -> list[str]:
        """Requests of a model held for a while and not run yet, as members of `due`."""
        return [
            held.member
            for held in self._not_on_device()
            if held.lane.model == model and held.taken_ms < taken_before_ms
        ]

    def drop_closed(self, model: str, closed: Collection[str]) -> list[Message]:
        """Give up requests that somebody else has ended, unless they are on the device.

        Their failures reach no caller, since the request is over; they end the entries.
        """
        over = [
            held
            for held in self._not_on_device()
            if held.lane.model == model and held.member in closed
        ]
        return self.requests.give_up(over, ErrorKind.CANCELLED, "it is over")

    @property
    def _on_device(self) -> frozenset[int]:
        """Numbers of the requests that run right now."""
        return self.running.requests if self.running is not None else frozenset()

    def _not_on_device(self) -> list[HeldRequest]:
        on_device = self._on_device
        return [held for number, held in self.requests.held.items() if number not in on_device]

    def overrun(self, now_ms: float) -> Overrun | None:
        """The time limit that was overrun, if any; the device process counts as hung then."""
        waiting = self.unloaded_lanes()
        if self.device_up and not self.is_greeted and waiting:  # it does not come up
            return overrun.of_start(waiting[0], now_ms - self.progress_ms)
        loading = self.queue.loading
        if loading is not None:
            return overrun.of_load(loading, now_ms - self.queue.since_ms)
        if self.running is not None:
            found = overrun.of_batch(self.running, now_ms)
        else:
            found = overrun.of_sides(self.requests.held.values(), now_ms - self.progress_ms)
        return found or overrun.of_one(self._not_on_device(), now_ms)

    def lanes_at_work(self) -> list[Lane]:
        """Lanes whose code runs in the device process right now, each once."""
        lanes = [
            held.lane
            for held in self._not_on_device()
            if held.phase is Phase.PREPARING or held.is_finishing
        ]
        if self.queue.loading is not None:
            lanes.append(self.queue.loading)
        elif self.running is not None:
            lanes.append(self.running.lane)
        return list(dict.fromkeys(lanes))

    def lose_device(self, kind: ErrorKind, message: str) -> bool:
        """The device process is gone: whatever was inside runs again, alone.

        A request that was alone in it is the culprit and ends with `kind`; returns whether there
        was one.
        """
        self.device_up = self.is_greeted = False
        self.running = None
        self.queue.clear()
        for lane in self.lanes.values():
            lane.ready = False
            lane.rows = []
        culprit = self.suspects.lose()
        for held in self.requests.inside():
            if held.phase is Phase.PREPARING:
                self.requests.end_preparing(held)
            if held is culprit:
                self.requests.fail_one(held, kind, message)
            else:
                held.start_over()
                held.lane.weigh(held)
                self.suspects.add_alone(held)
        return culprit is not None
