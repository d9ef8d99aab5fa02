"""One worker: an identity, a device process, and the threads that bring them work.

Threads: the *device* thread starts the device process, receives from it, sends the next batch and
then settles; one *intake* thread a model takes; the *heart* beats; the *keeper* (the thread that
calls `run`) follows the deploy records and watches limits. The core is called under one lock by
whichever thread has news, since a hand-over through a queue costs a tenth of a millisecond.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..broker import fleet, requests
from ..broker.interface import Broker, Executor
from ..service.clock import Clock
from ..service.events import Events
from ..service.lifecycle import guarded_thread
from ..service.outage import Outage
from ..service.settings import Settings
from ..wire.deployment import VersionRecord
from ..wire.errors import ErrorKind, ProtocolError, ServerError
from ..wire.keys import ModelKeys
from ..wire.work import WorkEntry
from .core import Core
from .frames import ChannelClosedError
from .heart import Heart
from .held import Ended, Lane, Placement
from .intake import BELL_TIMEOUT_S, Intake, Offer
from .link import Link
from .protocol import Adjust, Load, Message, Ready, Refused, Stop, Unload
from .settling import finish_item

_DEVICE_BACK_OFF_S = (0.1, 10.0)
_HEALTHY_MS = 60_000
_RETRY_SETTLE_S = 0.2
_IDLE_S = 1.0
_JOIN_S = 15.0
_ROOM_WAIT_S = 1.0


class Outcome(Enum):
    """How a worker's life ended."""

    STOPPED = "stopped"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What a worker is given; all of it outlives the worker."""

    settings: Settings
    events: Events
    clock: Clock
    outage: Outage
    broker: Broker
    open_link: Callable[[Path | None], Link]  # under an interpreter; None = the worker's own


class Worker:
    """Owns one identity. `lock` guards `core`, `link` and `unsettled`; `changed` tells of them."""

    def __init__(self, context: WorkerContext, name: str) -> None:
        self.name = name
        self.context = context
        self.core = Core()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.link: Link | None = None
        self.unsettled: list[Ended] = []
        self.settling = 0  # requests that the device thread is settling right now
        self.stopping = threading.Event()
        self.taking = True  # only ever goes to False
        self.server_offset_ms = 0.0  # server time minus monotonic time
        self.failure: BaseException | None = None
        self._device_thread = guarded_thread("device", self._device_loop, self.fail)
        settings = context.settings
        self.heart = Heart(
            self.connect("beat"), context.clock, name, settings.lease_ms, self._note_beat
        )
        self._heart_thread = guarded_thread("heart", self._heart_loop, self.fail)
        self._settle_executor = self.connect("settle")
        self._keys: dict[str, ModelKeys] = {}  # of the device thread, by model

    def connect(self, purpose: str, timeout_s: float = 10.0) -> Executor:
        """A connection of this worker's for one thread."""
        return self.context.broker.connect(f"{self.name}-{purpose}", timeout_s)

    def now_ms(self) -> float:
        """Monotonic time."""
        return self.context.clock.monotonic_ms()

    def fail(self, error: BaseException) -> None:
        """A thread died of `error`; the keeper ends the worker and raises it."""
        self.failure = error
        self.stopping.set()
        with self.lock:
            self.changed.notify_all()

    def start(self) -> None:
        """Start the device process and the heart."""
        self._device_thread.start()
        self._heart_thread.start()

    # Heart.

    def _heart_loop(self) -> None:
        beat_s = self.context.settings.beat_ms / 1000
        while not self.stopping.is_set() and not self.heart.fenced.is_set():
            try:
                self.heart.beat_once()
            except ServerError as error:
                self.context.outage.begins(error)
            else:
                self.context.outage.ends()
            self.heart.wait_s(beat_s)

    def _note_beat(self, began_ms: float) -> None:
        with self.lock:
            self.core.fresh_until_ms = began_ms + self.context.settings.lease_ms * 2 / 3
            self._send_plan()

    # Lanes; called by the keeper.

    def load_lane(self, lane: Lane) -> None:
        """Have the device process load a lane, now if it runs, else when it comes up."""
        with self.lock:
            self.core.progress_ms = self.now_ms()
            self.send([self._load_message(lane)])

    def adjust_lane(self, lane: Lane, record: VersionRecord) -> None:
        """Take over changed limits, here and in the device process."""
        with self.lock:
            lane.record = record
            self.send([Adjust(lane.number, record.to_wire())])

    def drop_lane(self, number: int) -> None:
        """Forget a lane; entries it held stay pending for this worker's successors."""
        with self.lock:
            self.core.remove_lane(number)
            self.send([Unload(number)])

    def _load_message(self, lane: Lane) -> Message:
        settings = self.context.settings
        return Load(
            lane.number,
            lane.model,
            lane.version,
            settings.store,
            settings.device,
            settings.threads,
            lane.record.to_wire(),
        )

    # Device.

    def _device_loop(self) -> None:
        back_off_s = _DEVICE_BACK_OFF_S[0]
        while not self.stopping.is_set():
            settings = self.context.settings
            link = self.context.open_link(None)
            started_ms = self.now_ms()
            self.context.events.emit("device.started", pid=link.pid, device=settings.device)
            self._come_up(link)
            try:
                self._serve(link)
            except (ChannelClosedError, ProtocolError):
                if not self.stopping.is_set():
                    self._lose(link)
            else:
                with self.lock:
                    self.link = None
                link.end(_JOIN_S)
                return
            if self.now_ms() - started_ms > _HEALTHY_MS:
                back_off_s = _DEVICE_BACK_OFF_S[0]
            self.stopping.wait(back_off_s)
            back_off_s = min(2 * back_off_s, _DEVICE_BACK_OFF_S[1])

    def _come_up(self, link: Link) -> None:
        with self.lock:
            self.link = link
            self.core.device_up = True
            self.core.progress_ms = self.now_ms()
            self.send(
                [self._load_message(lane) for lane in self.core.lanes.values() if not lane.refusal]
            )

    def _lose(self, link: Link) -> None:
        with self.lock:
            self.link = None
        limited = bool(link.kill_reason)
        link.kill(link.kill_reason)
        reason = link.end(_JOIN_S)
        kind = ErrorKind.TIME_LIMIT if limited else ErrorKind.POISON
        with self.lock:
            before = len(self.core.held)
            ended = self.core.lose_device(kind, f"it ended the device process: {reason}")
            suspects = before - sum(1 for h in self.core.held.values() if h.attempt == 1)
        self.context.events.emit("device.lost", pid=link.pid, reason=reason, suspects=suspects)
        self.settle(ended)

    def _serve(self, link: Link) -> None:
        """Receive, send what comes next, then settle; until told to stop."""
        while True:
            messages = link.receive(self._patience_s())
            with self.lock:
                now_ms = self.now_ms()
                ended = [e for message in messages for e in self.core.receive(message, now_ms)]
                self._send_plan()
                self.changed.notify_all()
            for message in messages:
                if isinstance(message, Ready | Refused):
                    self._report(message)
            self.settle(ended)
            if self.stopping.is_set():
                link.send(Stop())
                return

    def _patience_s(self) -> float:
        look_again_ms = self.core.look_again_ms
        if look_again_ms is not None:
            return max(0.0, (look_again_ms - self.now_ms()) / 1000)
        return _RETRY_SETTLE_S if self.unsettled else _IDLE_S

    def _report(self, message: Ready | Refused) -> None:
        lane = self.core.lanes.get(message.lane)
        if lane is None:
            return
        fields = {"model": lane.model, "version": lane.version}
        if isinstance(message, Ready):
            self.context.events.emit("lane.ready", **fields, load_ms=round(message.load_ms))
        else:
            self.context.events.emit("lane.refused", **fields, reason=message.message)

    def _send_plan(self) -> None:
        """Send what the core wants sent; the lock is held."""
        self.send(self.core.plan(self.now_ms()))

    def send(self, messages: list[Message]) -> None:
        """Send to the device process if it runs; the lock is held."""
        link = self.link
        if link is None:
            return
        try:
            for message in messages:
                link.send(message)
        except ChannelClosedError:
            # The receiving thread finds the channel closed as well and starts anew.
            return

    # Settling; on the device thread.

    def settle(self, ended: list[Ended]) -> None:
        """Write answers and failures; what the server refuses is kept and tried again."""
        with self.lock:
            batch = self.unsettled + ended
            self.unsettled = []
            self.settling = len(batch)
        if not batch:
            return
        left: list[Ended] = []
        by_model: dict[str, list[Ended]] = {}
        for one in batch:
            by_model.setdefault(one.held.lane.model, []).append(one)
        for model, some in by_model.items():
            left += self._settle_model(self._keys_of(model), some)
        unsettled = {one.held.number for one in left}
        with self.lock:
            self.core.forget_settled(one.held for one in batch if one.held.number not in unsettled)
            self.settling = 0
            self.unsettled = left + self.unsettled
            self.core.unsettled_rows = len(self.unsettled)
            self.changed.notify_all()

    def hand_over(self, ended: list[Ended]) -> None:
        """Have the device thread settle what ended elsewhere."""
        if not ended:
            return
        with self.lock:
            self.unsettled += ended
            if self.link is not None:
                self.link.wake()

    def _keys_of(self, model: str) -> ModelKeys:
        keys = self._keys.get(model)
        if keys is None:
            keys = self._keys[model] = ModelKeys(self.context.settings.namespace, model)
        return keys

    def _settle_model(self, keys: ModelKeys, ended: list[Ended]) -> list[Ended]:
        items = [finish_item(one, self.name, self.server_offset_ms) for one in ended]
        done = 0
        try:
            for some in requests.split_finish(items):
                self._settle_executor.run(requests.finish(keys, self.name, some))
                done += len(some)
        except ServerError as error:
            self.context.outage.begins(error)
        return ended[done:]

    # The desk of the intake threads.

    def run_intake(self, keys: ModelKeys, over: threading.Event) -> None:
        """Take entries of one model until told to stop; on a thread of its own."""
        Intake(self, keys, self.connect("take", BELL_TIMEOUT_S + 10.0), over).run()

    def offer(self, model: str) -> Offer:
        """Lanes of a model that may take, waited for up to a second."""
        with self.lock:
            offer = self._find_room(model)
            if not offer.lanes and self.taking:
                self.changed.wait(_ROOM_WAIT_S)
                offer = self._find_room(model)
            return offer

    def _find_room(self, model: str) -> Offer:
        if not self.taking or self.now_ms() > self.core.fresh_until_ms:
            return Offer((), crowded=True)
        ready = [lane for lane in self.core.lanes.values() if lane.model == model and lane.ready]
        lanes = [(lane, room) for lane in ready if (room := self.core.room(lane)) > 0]
        return Offer(lanes, crowded=len(lanes) < len(ready))

    def hold(self, lane: Lane, entries: Sequence[tuple[Placement, WorkEntry]]) -> None:
        """Take entries over and start what can be started."""
        with self.lock:
            self.core.take(lane, entries, self.now_ms(), self.server_offset_ms)
            self._send_plan()
            if self.core.look_again_ms is not None and self.link is not None:
                self.link.wake()

    def is_held(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is in our hands, or being settled."""
        with self.lock:
            return self.core.has_entry(stream, entry_id)

    def server_now_ms(self) -> float:
        """The server's clock, as far as known."""
        return self.now_ms() + self.server_offset_ms

    def report_unreadable(self, what: str) -> None:
        """Tell of an entry that was not written by a router."""
        self.context.events.emit("worker.unreadable_entry", worker=self.name, reason=what)

    def fence(self) -> None:
        """This worker is not among the living any more; the keeper ends it."""
        self.heart.fenced.set()

    def report_outage(self, error: ServerError) -> None:
        """The server gave no answer, or an error."""
        self.context.outage.begins(error)

    # The end.

    def stop_taking(self) -> None:
        """Have the intake threads end; the caller rings their bells, since they may be waiting."""
        with self.lock:
            self.taking = False
            self.changed.notify_all()

    def drain(self, stop_at_ms: float) -> None:
        """Finish what is held, at the latest at `stop_at_ms`."""
        with self.lock:
            while (self.core.held or self.unsettled or self.settling) and self.failure is None:
                left_s = (stop_at_ms - self.now_ms()) / 1000
                if self.heart.fenced.is_set():
                    return
                if left_s <= 0:
                    if self.link is not None:
                        self.link.kill("it did not end within the grace period")
                    return
                self.changed.wait(min(left_s, _RETRY_SETTLE_S))

    def stop(self) -> None:
        """End all threads and the device process; leave what can be left."""
        self.stopping.set()
        self.heart.stop()
        with self.lock:
            self.changed.notify_all()
            if self.link is not None:
                self.link.wake()
        self._heart_thread.join(_JOIN_S)
        self._device_thread.join(_JOIN_S)
        try:
            self.heart.leave_all()
        except ServerError as error:
            self.context.outage.begins(error)

    def measure_server_offset(self, executor: Executor) -> None:
        """Learn how far the server's clock lies ahead of our monotonic one.

        Raises:
            ServerError: the server failed.
        """
        before_ms = self.now_ms()
        server_ms = executor.run(fleet.server_time())
        self.server_offset_ms = server_ms - (before_ms + self.now_ms()) / 2
