"""One device process, the core that decides what it gets, and the thread that talks to it.

A worker has one unit per environment. The unit's *device* thread starts the process, receives from
it, sends the next batch and then settles. The worker's one lock guards all units: whoever has news
calls the core under it, since a hand-over through a queue costs a tenth of a millisecond.
"""

import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ...broker.commands import Command
from ...broker.interface import Executor
from ...service.back_off import HEALTHY_MS, BackOff, Restarts
from ...wire.deployment import VersionRecord
from ...wire.errors import ErrorBody, ErrorKind, ProtocolError
from ...wire.keys import ModelKeys
from ...wire.work import WorkEntry
from ..batching.conduct import Loss
from ..batching.core import Core
from ..batching.state import EndedRequest, HeldRequest, Lane, Placement, RecoveredEntry
from ..link.frames import ChannelClosedError
from ..link.link import Link
from ..link.protocol import Adjust, Load, Message, Stop, Unload
from .blobs import Placed, failures_of
from .context import WorkerContext
from .finisher import Settler
from .lane_news import LaneNews
from .unit_key import UnitKey

_BACK_OFF = BackOff(first_s=0.1, longest_s=10.0)
_IDLE_S = 1.0
_LOOK_MS = 1000.0
# A process that is ending closes its connection a moment before it is gone.
_CLOSING_S = 0.1
JOIN_S = 15.0
# Device processes in a row that ended before their first word.
_STILLBORN_MAX = 3


class Identity(Protocol):
    """What a unit needs of its worker."""

    name: str
    context: WorkerContext
    lock: threading.RLock
    changed: threading.Condition
    stopping: threading.Event
    taking: bool
    server_offset_ms: float

    def now_ms(self) -> float:
        """Monotonic time."""

    def connect(self, purpose: str) -> Executor:
        """A connection for one thread."""

    def inside_note(self, keys: ModelKeys) -> list[Command[int]]:
        """The command that tells peers what is in the device processes; none where that is told."""

    def fail(self, error: BaseException) -> None:
        """A thread died of `error`."""


class DeviceUnit:
    """Owns one device process at a time. The worker's lock guards `core`, `link`, `unsettled`."""

    def __init__(
        self, worker: Identity, key: UnitKey, python: Path | None, batches: Iterator[int]
    ) -> None:
        self.key = key
        self.core = Core(batches)
        self.link: Link | None = None
        self.unsettled: list[EndedRequest] = []
        self.settling = 0  # requests that the device thread is settling right now
        self.python = python
        self.is_closed = False
        self._worker = worker
        self._context = worker.context
        self._lock = worker.lock
        self._changed = worker.changed
        self._overrun: Lane | None = None  # for which the process was killed; guarded by the lock
        self._stillborn = 0  # device processes in a row; of the device thread
        self._over = threading.Event()  # nobody needs this unit any more
        self._settler = Settler(worker, worker.connect("settle"))
        self._loop = worker.context.watchdog.watch(key.loop_name, JOIN_S)
        self._started_ms = 0.0  # when the device process was started; of the device thread
        self._look_ms = 0.0  # when to look next at what it has started; of the device thread
        self._restarts = Restarts(_BACK_OFF)  # of the device thread
        self._thread = worker.context.make_thread("device", self, worker.fail)

    def start(self) -> None:
        """Start the device process."""
        self._thread.start()

    # Lanes; called by the keeper.

    def open_lane(self, model: str, record: VersionRecord) -> Lane:
        """A new lane, which the device process loads in its turn."""
        with self._lock:
            lane = self.core.add_lane(model, record)
            self._load_next()
        return lane

    def _load_next(self) -> None:
        """Have one lane loaded, where none is; the lock is held.

        One at a time, so that a batch comes between two loads. Those that were loaded before go
        first. None is sent before the first word of a process: no version is to blame where there
        is none.
        """
        core, link = self.core, self.link
        lanes = core.unloaded_lanes()
        can_load = core.device_up and core.is_greeted and not core.queue.has_load
        if link is None or not can_load or not lanes:
            return
        is_proven = self._context.conduct.is_proven
        lane = min(lanes, key=lambda lane: (not is_proven(lane.name), lane.number))
        if self.send([self._load_message(lane)]):
            core.begin_load(lane, self._worker.now_ms())

    def take_on(self, lane: Lane, handed: Sequence[tuple[HeldRequest, bool]]) -> Lane:
        """A new lane in the place of one of another unit, with what that held; the lock is held."""
        new = self.open_lane(lane.model, lane.record)
        self.core.take_on(new, handed)
        return new

    def hand_on(self, lane: Lane) -> list[tuple[HeldRequest, bool]]:
        """Forget a lane that goes on in another unit; the lock is held."""
        return self.core.hand_on(lane.number)

    def adjust_lane(self, lane: Lane, record: VersionRecord) -> None:
        """Take over changed limits, here and in the device process."""
        with self._lock:
            lane.record = record
            self.send([Adjust(lane.number, record.to_wire())])

    def drop_lane(self, lane: Lane) -> bool:
        """Forget a lane; returns whether it held entries, which stay pending for the worker."""
        with self._lock:
            left = self.core.remove_lane(lane.number)
            self.send([Unload(lane.number)])
        return bool(left)

    def _load_message(self, lane: Lane) -> Message:
        settings = self._context.settings
        return Load(
            lane.number,
            lane.model,
            lane.version,
            settings.store,
            settings.device,
            settings.threads,
            lane.record.to_wire(),
        )

    # The device thread.

    def run(self) -> None:
        """Keep a device process and serve it, until nobody needs this unit any more."""
        try:
            while (pause_s := self.step()) is not None:
                if pause_s:
                    self._worker.stopping.wait(pause_s)
        finally:
            self.close()

    def step(self) -> float | None:
        """Start a device process, or receive from it once; see `Stepped`."""
        link = self.link
        if link is None:
            if self._is_over():
                return None
            return self._start_process()
        try:
            if self._serve(link):
                return 0.0
        except ChannelClosedError:
            return self._part_from(link, "it closed its connection")
        except ProtocolError as error:
            return self._part_from(link, f"it broke the protocol: {error}")
        with self._lock:
            self.link = None
        link.end(JOIN_S)
        return None

    def _part_from(self, link: Link, why: str) -> float | None:
        if not self._worker.stopping.is_set():
            return self._mourn(link, why)
        with self._lock:
            self.link = None
        link.end(_CLOSING_S)
        return None

    def close(self) -> None:
        """End the watch, and the connection."""
        self._loop.end()
        self._settler.close()
        self.is_closed = True

    def _is_over(self) -> bool:
        return self._worker.stopping.is_set() or (self._over.is_set() and not self.unsettled)

    def _start_process(self) -> float:
        """Start a device process; returns how long to wait before another try, in seconds."""
        try:
            link = self._context.open_link(self.python)
        except OSError as error:  # an environment may be taken away at any time
            with self._lock:
                self._count_stillborn(self.core.unloaded_lanes(), str(error))
                news = LaneNews(self.core.lanes)
            news.tell(self._context.events)
            return self._restarts.next_s(ran_ms=0.0)
        self._started_ms = self._worker.now_ms()
        device = self._context.settings.device
        self._context.events.emit("device.started", pid=link.pid, device=device)
        self._come_up(link)
        return 0.0

    def _mourn(self, link: Link, why: str) -> float:
        """Lose a device process; returns how long to wait before the next one, in seconds."""
        had_culprit = self._lose(link, why)
        ran_ms = self._worker.now_ms() - self._started_ms
        return self._restarts.next_s(HEALTHY_MS if had_culprit else ran_ms)

    def _come_up(self, link: Link) -> None:
        with self._lock:
            self.link = link
            self.core.device_up = True
            self.core.progress_ms = self._worker.now_ms()

    def _lose(self, link: Link, why: str) -> bool:
        """Mourn a device process; returns whether a culprit was found, who is gone as well."""
        with self._lock:
            self.link = None
        limited = bool(link.kill_reason)
        reason = link.end(_CLOSING_S, why)
        kind = ErrorKind.TIME_LIMIT if limited else ErrorKind.POISON
        with self._lock:
            suspects = self.core.count_inside()
            was_found = self._judge(reason)
            ended = self.core.lose_device(kind, f"it ended the device process: {reason}")
            news = LaneNews(self.core.lanes)
        self._context.events.emit("device.lost", pid=link.pid, reason=reason, suspects=suspects)
        news.tell(self._context.events)
        self.settle(ended)
        return bool(ended) or was_found

    def _judge(self, reason: str) -> bool:
        """See who is to blame for a loss; returns whether that is known. The lock is held."""
        overrun, self._overrun = self._overrun, None
        if not self._worker.taking:  # it is told to stop, and may have been killed for being late
            return False
        conduct, now_ms = self._context.conduct, self._worker.now_ms()
        if not self.core.is_greeted:
            unloaded = self.core.unloaded_lanes()
            new = [lane for lane in unloaded if not conduct.is_proven(lane.name)]
            return self._count_stillborn(new, reason)
        loading = self.core.queue.loading
        loss = Loss(
            reason=reason,
            loading=loading if overrun in {None, loading} else None,
            at_work=self.core.at_work() if overrun is None else [overrun],
            loaded=[lane for lane in self.core.lanes.values() if lane.ready],
            is_shared=self.key.is_shared,
            at_ms=now_ms,
        )
        was_found = conduct.judge(loss)
        lanes = [lane for lane in self.core.lanes.values() if not lane.refusal]
        if self.key.is_shared and len(lanes) > 1:
            for lane in lanes:
                lane.leaving = conduct.is_apart(lane.name, self.key.environment, now_ms)
        return was_found

    def _count_stillborn(self, lanes: Sequence[Lane], reason: str) -> bool:
        """Refuse these lanes where device processes do not come up; the lock is held."""
        self._stillborn += 1
        if self._stillborn >= _STILLBORN_MAX:
            for lane in lanes:
                lane.refusal = f"its device process does not start: {reason}"
        return False

    def _serve(self, link: Link) -> bool:
        """Receive, send what comes next, then settle; False once the process was told to stop."""
        messages = link.receive(self._patience_s())
        with self._lock:
            now_ms = self._worker.now_ms()
            ended = [e for message in messages for e in self.core.receive(message, now_ms)]
            self.send_plan()
            self._load_next()
            news = LaneNews(self.core.lanes, messages)
            for lane, _ in news.ready:
                self._stillborn = 0
                self._context.conduct.note_ready(lane.name)
            self._changed.notify_all()
        news.tell(self._context.events)
        self.settle(ended)
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + _LOOK_MS
            link.look()
        if self._is_over():
            link.send(Stop())
            return False
        return True

    def _patience_s(self) -> float:
        look_again_ms = self.core.look_again_ms
        if look_again_ms is not None:
            return max(0.0, (look_again_ms - self._worker.now_ms()) / 1000)
        return min(_IDLE_S, self._loop.delay_s()) if self.unsettled else _IDLE_S

    def send_plan(self) -> None:
        """Send what the core wants sent; the lock is held."""
        before = self.core.running
        messages = self.core.plan(self._worker.now_ms())
        if self.core.running is before:
            self.send(messages)
        else:
            self._context.faults.reach("worker.before_run")
            self.send(messages)
            self._context.faults.reach("worker.while_running")

    def send(self, messages: list[Message]) -> bool:
        """Send to the device process if it runs; the lock is held. Whether all went out."""
        link = self.link
        if link is None:
            return False
        try:
            for message in messages:
                link.send(message)
        except ChannelClosedError:
            # The receiving thread finds the channel closed as well and starts anew.
            self.core.suspects.acquit()
            return False
        return True

    # Settling; on the device thread.

    def settle(self, ended: list[EndedRequest]) -> None:
        """Write answers and failures; what the server refuses is kept and tried again."""
        with self._lock:
            batch = self.unsettled + ended
            is_due = bool(batch) and self._loop.delay_s() == 0
            self.unsettled = [] if is_due else batch
            self.settling = len(batch) if is_due else 0
            self.core.unsettled_rows = len(self.unsettled)
        if not is_due:
            self._loop.passed()
            return
        left, errors = self._settler.settle(batch)
        unsettled = {one.held.number for one in left}
        with self._lock:
            self.core.forget_settled(one.held for one in batch if one.held.number not in unsettled)
            self.settling = 0
            self.unsettled = left + self.unsettled
            self.core.unsettled_rows = len(self.unsettled)
            self._changed.notify_all()
        for error in errors:
            self._loop.failed(error)
        if not errors:
            self._loop.worked()

    def hand_over(self, ended: list[EndedRequest]) -> None:
        """Have the device thread settle what ended elsewhere."""
        if not ended:
            return
        with self._lock:
            self.unsettled += ended
            self.wake()

    # Called by other threads; the lock is held.

    def hold(self, lane: Lane, entries: Sequence[tuple[Placement, WorkEntry]]) -> None:
        """Take entries over and start what can be started."""
        worker = self._worker
        self.core.take(lane, entries, worker.now_ms(), worker.server_offset_ms)
        self.send_plan()
        if self.core.look_again_ms is not None:
            self.wake()

    def refuse(self, lane: Lane, refused: Sequence[tuple[Placed, ErrorBody]]) -> None:
        """Take entries over that cannot be run, and answer them so."""
        worker = self._worker
        entries = [placed for placed, _ in refused]
        taken = self.core.take(lane, entries, worker.now_ms(), worker.server_offset_ms)
        self.hand_over(self.core.fail(failures_of(taken, refused)))

    def take_over(self, lane: Lane, entries: Sequence[RecoveredEntry]) -> None:
        """Take over what a lost worker had taken."""
        worker = self._worker
        ended = self.core.take_over(lane, entries, worker.now_ms(), worker.server_offset_ms)
        self.send_plan()
        self.hand_over(ended)

    @property
    def busy(self) -> bool:
        """Whether anything is held, or over and not settled yet."""
        return bool(self.core.held or self.unsettled or self.settling)

    def watch_limits(self) -> None:
        """Give up what is late, and end a device process that has overrun a limit."""
        now_ms = self._worker.now_ms()
        messages, ended = self.core.expire(now_ms)
        self.send(messages)
        overrun = self.core.overrun(now_ms)
        if overrun is not None and self.link is not None:
            self._overrun = overrun.lane
            self.kill(f"{overrun.stage} took longer than its limit")
        self.hand_over(ended)

    def drop_closed(self, model: str, closed: Collection[str]) -> None:
        """Give up what somebody else has ended."""
        messages, ended = self.core.drop_closed(model, closed)
        self.send(messages)
        self.hand_over(ended)

    def kill(self, reason: str) -> None:
        """End the device process, if it runs."""
        if self.link is not None:
            # Its last words may still come; what they lead to must not be sent to the dead.
            self.core.device_up = False
            self.link.kill(reason)

    def wake(self) -> None:
        """Have the device thread look again at what there is to do."""
        if self.link is not None:
            self.link.wake()

    # The end.

    def retire(self) -> None:
        """End the process and the thread as soon as nothing is left to settle; does not wait."""
        self._over.set()
        with self._lock:
            self.wake()

    def join(self) -> None:
        """Wait for the thread to end; at most `JOIN_S`."""
        self._thread.join(JOIN_S)
