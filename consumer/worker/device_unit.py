"""One device process, the core that decides what it gets, and the thread that talks to it.

Which versions a unit has is for `unit_key.py` to say. The unit's *device* thread starts the
process, receives from it, sends the next batch and then settles. The worker's one lock guards all
units: every thread with news calls the core under it, since a hand-over through a queue costs a
tenth of a millisecond.
"""

import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ...service.back_off import HEALTHY_MS, BackOff, Restarts
from ...service.lifecycle import run_steps
from ...wire.deployment import VersionRecord
from ...wire.errors import ErrorBody, ErrorKind, ProtocolError
from ..batching.core import Core
from ..batching.loss_history import Loss
from ..batching.state import Lane, TakenEntry
from ..link.frames import ChannelClosedError
from ..link.link import Link
from ..link.protocol import Adjust, Load, Memory, Message, Stop, Unload
from .finisher import Finisher, NoteInside
from .lane_news import LaneNews, in_words
from .shared_state import SharedState
from .unit_key import OVERFLOW, UnitKey

_BACK_OFF = BackOff(first_s=0.1, longest_s=10.0)
_IDLE_S = 1.0
_LOOK_MS = 1000.0
# A process that is ending closes its connection a moment before it is gone.
_CLOSING_S = 0.1
JOIN_S = 15.0
# Device processes in a row that ended before their first word.
_FAILED_STARTS_MAX = 3
# Without a request for so long, a process is likely to have none for a while; a load waits for that
# up to some time.
_QUIET_MS = 250.0
_PUT_OFF_MS = 10_000.0


class DeviceUnit:
    """Owns one device process at a time. The worker's lock guards `core` and `link`."""

    def __init__(
        self,
        worker: SharedState,
        key: UnitKey,
        python: Path | None,
        batches: Iterator[int],
        note_inside: NoteInside,
    ) -> None:
        self.key = key
        self.core = Core(batches)
        self.link: Link | None = None
        self.python = python
        self.is_closed = False
        self._worker = worker
        self._context = worker.context
        self._lock = worker.lock
        self._changed = worker.changed
        self._overrun: Lane | None = None  # for which the process was killed; guarded by the lock
        self._wanted_ms: float | None = None  # since when a load is put off; guarded by the lock
        self._failed_starts = 0  # device processes in a row; of the device thread
        self._retiring = threading.Event()  # nobody needs this unit any more
        self._finisher = Finisher(worker, worker.connect("settle"), note_inside)
        self._loop = worker.context.watchdog.watch(key.loop_name, JOIN_S)
        self._started_ms = 0.0  # when the device process was started; of the device thread
        self._look_ms = 0.0  # when to look next at what it has started; of the device thread
        self._restarts = Restarts(_BACK_OFF)  # of the device thread
        self._thread = worker.context.make_thread("device", self, worker.fail)

    def start(self) -> None:
        """Start the device process."""
        self._thread.start()

    # Lanes; called by the keeper.

    @property
    def has_served(self) -> bool:
        """Whether one of its lanes was ready once, even if its process is lost right now."""
        return any(lane.was_ready for lane in self.core.lanes.values())

    def open_lane(self, model: str, record: VersionRecord) -> Lane:
        """A new lane, which the device process loads in its turn."""
        with self._lock:
            lane = self.core.open_lane(model, record)
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
        if link is None or not can_load or not lanes or not self._may_load(lanes):
            return
        self._wanted_ms = None
        is_proven = self._context.losses.is_proven
        lane = min(lanes, key=lambda lane: (not is_proven(lane.name), lane.number))
        if self.send([self._load_message(lane)]):
            core.queue.add(lane, self._worker.now_ms())

    def adjust_lane(self, lane: Lane, record: VersionRecord) -> None:
        """Take over changed limits, here and in the device process."""
        with self._lock:
            lane.adjust(record)
            self.send([Adjust(lane.number, record.to_wire())])

    def drop_lane(self, lane: Lane) -> bool:
        """Forget a lane; returns whether it held entries, which stay pending for the worker."""
        with self._lock:
            left = self.core.drop_lane(lane)
            self.send([Unload(lane.number)])
        return bool(left)

    def _may_load(self, lanes: Sequence[Lane]) -> bool:
        """Whether a load keeps nobody waiting who shares the process, or was put off for long.

        Only new versions are put off, where they share it because there can be no more of them.
        After a loss, those that have served and the suspects wait for the loads themselves.
        """
        core, now_ms = self.core, self._worker.now_ms()
        is_awaited = bool(core.suspects) or any(lane.was_ready for lane in lanes)
        if self.key.version != OVERFLOW or not self._serves or is_awaited:
            return True
        if self._wanted_ms is None:
            self._wanted_ms = now_ms
        is_quiet = not core.requests.held and now_ms - core.progress_ms >= _QUIET_MS
        return is_quiet or now_ms - self._wanted_ms >= _PUT_OFF_MS

    @property
    def _serves(self) -> bool:
        return any(lane.ready for lane in self.core.lanes.values())

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
            in_words(self._worker.serving()),
            self._context.losses.memory_of(lane.name),
            settings.warm_slice_ms if self._serves else 0,
        )

    # The device thread.

    def run(self) -> None:
        """Keep a device process and serve it, until nobody needs this unit any more."""
        run_steps(self, self._worker.stopping.wait)

    def step(self) -> float | None:
        """Start a device process, or receive from it once; see `Stepped`."""
        link = self.link
        if link is None:
            return None if self._is_over() else self._start_process()
        try:
            if self._serve(link):
                return 0.0
            # A load cannot be told to stop, and nobody waits for it any more.
            patience_s = _CLOSING_S if self.core.queue.loading is not None else JOIN_S
        except ProtocolError as error:
            is_closed = isinstance(error, ChannelClosedError)
            why = "it closed its connection" if is_closed else f"it broke the protocol: {error}"
            if not self._worker.stopping.is_set():
                return self._replace(link, why)
            patience_s = _CLOSING_S
        with self._lock:
            self.link = None
        link.end(patience_s)
        return None

    def close(self) -> None:
        """End the watch, and the connection."""
        self._loop.end()
        self._finisher.close()
        self.is_closed = True

    def _is_over(self) -> bool:
        return self._worker.stopping.is_set() or (
            self._retiring.is_set() and not self.core.requests.unsettled
        )

    def _start_process(self) -> float:
        """Start a device process; returns how long to wait before another try, in seconds."""
        try:
            link = self._context.devices.open_link(self.python)
        except OSError as error:  # an environment may be taken away at any time
            with self._lock:
                self._count_failed_start(self.core.unloaded_lanes(), str(error))
                news = LaneNews(self.core.lanes)
            news.report(self._context.events)
            return self._restarts.next_s(ran_ms=0.0)
        self._started_ms = self._worker.now_ms()
        device = self._context.settings.device
        self._context.events.emit("device.started", pid=link.pid, device=device)
        with self._lock:
            self.link = link
            self.core.device_up = True
            self.core.progress_ms = self._started_ms
        return 0.0

    def _replace(self, link: Link, why: str) -> float:
        """Note that a process is lost; returns how long to wait before the next, in seconds."""
        was_found = self._lose(link, why)
        ran_ms = self._worker.now_ms() - self._started_ms
        return self._restarts.next_s(HEALTHY_MS if was_found else ran_ms)

    def _lose(self, link: Link, why: str) -> bool:
        """End what is left of a lost process; returns whether it is known who ended it."""
        with self._lock:
            self.link = None
        limited = bool(link.kill_reason)
        reason = link.end(_CLOSING_S, why)
        kind = ErrorKind.TIME_LIMIT if limited else ErrorKind.POISON
        with self._lock:
            suspects = len(self.core.requests.inside())
            was_found = self._find_culprit(reason)
            text = f"it ended the device process: {reason}"
            was_found |= self.core.lose_device(kind, text)
            news = LaneNews(self.core.lanes)
        self._context.events.emit("device.lost", pid=link.pid, reason=reason, suspects=suspects)
        news.report(self._context.events)
        self._settle()
        return was_found

    def _find_culprit(self, reason: str) -> bool:
        """See who is to blame for a loss; returns whether that is known. The lock is held."""
        overrun, self._overrun = self._overrun, None
        if not self._worker.taking:  # it is told to stop, and may have been killed for being late
            return False
        losses, now_ms = self._context.losses, self._worker.now_ms()
        if not self.core.is_greeted:
            unloaded = self.core.unloaded_lanes()
            new = [lane for lane in unloaded if not losses.is_proven(lane.name)]
            self._count_failed_start(new, reason)
            return False
        loading = self.core.queue.loading
        loss = Loss(
            reason=reason,
            loading=loading if overrun in {None, loading} else None,
            at_work=self.core.lanes_at_work() if overrun is None else [overrun],
            loaded=[lane for lane in self.core.lanes.values() if lane.ready],
            is_shared=self.key.is_shared,
            at_ms=now_ms,
        )
        was_found = losses.note_loss(loss)
        lanes = [lane for lane in self.core.lanes.values() if not lane.refusal]
        if self.key.is_shared and len(lanes) > 1:
            for lane in lanes:
                lane.is_moving = losses.needs_own_process(lane.name, self.key.environment, now_ms)
        return was_found

    def _count_failed_start(self, lanes: Sequence[Lane], reason: str) -> None:
        """Refuse these lanes where device processes do not come up; the lock is held."""
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS_MAX:
            for lane in lanes:
                lane.refusal = f"its device process does not start: {reason}"

    def _serve(self, link: Link) -> bool:
        """Receive, send what comes next, then settle; False once the process was told to stop."""
        messages = link.receive(self._patience_s())
        with self._lock:
            now_ms = self._worker.now_ms()
            for message in messages:
                self.core.receive(message, now_ms)
            self.send_plan()
            self._load_next()
            news = LaneNews(self.core.lanes, messages)
            for lane, _ in news.ready:
                self._failed_starts = 0
                self._context.losses.note_ready(lane.name, lane.memory_bytes)
            for message in messages:
                if isinstance(message, Memory):
                    self._worker.free_bytes = message.free_bytes
            self._changed.notify_all()
        news.report(self._context.events)
        self._settle()
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
        return min(_IDLE_S, self._loop.delay_s()) if self.core.requests.unsettled else _IDLE_S

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
            # The receiving thread finds the channel closed as well and starts another process.
            self.core.suspects.clear_blame()
            return False
        return True

    def _settle(self) -> None:
        """Write answers and failures; what the server refuses is tried again."""
        requests = self.core.requests
        with self._lock:
            is_due = bool(requests.unsettled) and self._loop.delay_s() == 0
            ended = list(requests.unsettled.values()) if is_due else []
        if not is_due:
            self._loop.passed()
            return
        left, errors = self._finisher.settle(ended)
        with self._lock:
            requests.end_settling(ended, left)
            self._changed.notify_all()
        for error in errors:
            self._loop.failed(error)
        if not errors:
            self._loop.worked()

    # Called by other threads.

    def take(self, lane: Lane, entries: Sequence[TakenEntry]) -> None:
        """Hold entries and start what can be started."""
        worker = self._worker
        with self._lock:
            if self._has(lane, entries):
                self.core.take(lane, entries, worker.now_ms(), worker.server_offset_ms)
                self.send_plan()
                if self.core.look_again_ms is not None:
                    self.wake()

    def refuse(self, lane: Lane, refused: Sequence[tuple[TakenEntry, ErrorBody]]) -> None:
        """Hold entries that cannot be run, and answer them so."""
        worker = self._worker
        entries = [taken for taken, _ in refused]
        with self._lock:
            if self._has(lane, entries):
                held = self.core.take(lane, entries, worker.now_ms(), worker.server_offset_ms)
                for request, (_, error) in zip(held, refused, strict=True):
                    self.core.requests.fail_one(request, error.kind, error.message)
                self._wake_to_settle()

    def take_over(self, lane: Lane, entries: Sequence[TakenEntry]) -> None:
        """Hold what a lost worker had taken."""
        worker = self._worker
        with self._lock:
            if self._has(lane, entries):
                self.core.take_over(lane, entries, worker.now_ms(), worker.server_offset_ms)
                self.send_plan()
                self._wake_to_settle()

    def _has(self, lane: Lane, entries: Sequence[object]) -> bool:
        """Whether a lane is still here; entries of one that was dropped meanwhile are orphaned."""
        has_lane = self.core.lanes.get(lane.number) is lane
        if entries and not has_lane:
            self._worker.note_orphaned(lane)
        return has_lane

    # Called by other threads; the lock is held.

    @property
    def busy(self) -> bool:
        """Whether anything is held, or over and not settled yet."""
        return bool(self.core.requests.held or self.core.requests.unsettled)

    def watch_limits(self) -> None:
        """Give up what is late, and end a device process that has overrun a limit."""
        now_ms = self._worker.now_ms()
        self.send(self.core.expire(now_ms))
        overrun = self.core.overrun(now_ms)
        if overrun is not None and self.link is not None:
            self._overrun = overrun.lane
            self.kill(f"{overrun.stage} took longer than its limit")
        self._wake_to_settle()

    def drop_closed(self, model: str, closed: Collection[str]) -> None:
        """Give up what somebody else has ended."""
        self.send(self.core.drop_closed(model, closed))
        self._wake_to_settle()

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

    def _wake_to_settle(self) -> None:
        if self.core.requests.unsettled:
            self.wake()

    # The end.

    def retire(self) -> None:
        """End the process and the thread as soon as nothing is left to settle; does not wait."""
        self._retiring.set()
        with self._lock:
            self.wake()

    def join(self) -> None:
        """Wait for the thread to end; at most `JOIN_S`."""
        self._thread.join(JOIN_S)
