"""One worker: an identity, its device processes, and the threads that bring them work.

Threads: one *device* thread a device process (`device_unit.py`); one *intake* thread a model takes;
the *heart* beats; the *keeper* (the thread that calls `run`) follows the deploy records and watches
limits.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from itertools import count
from pathlib import Path

from ...broker import fleet
from ...broker.commands import Command
from ...broker.interface import COMMAND_TIMEOUT_S, Executor, blocking_timeout_s
from ...service.watchdog import PROMPT, Pace
from ...wire.deployment import Deployment, Stamp, VersionRecord
from ...wire.errors import ErrorBody, ServerError
from ...wire.keys import ModelKeys
from ...wire.work import WorkEntry
from ..batching.state import Lane, Placement, RecoveredEntry
from .blobs import Placed
from .context import WorkerContext
from .device_unit import JOIN_S, DeviceUnit
from .heartbeat import Heartbeat
from .intake import BELL_TIMEOUT_S, Intake, Offer
from .unit_key import CROWD, UnitKey

_ROOM_WAIT_S = 1.0
_DRAIN_LOOK_S = 0.2
_NOTHING = Offer((), crowded=True, stamp=Stamp())


class Outcome(Enum):
    """How a worker's life ended."""

    STOPPED = "stopped"
    FENCED = "fenced"
    STRANDED = "stranded"


class Worker:
    """Owns one identity and its units. `lock` guards what the units say it does.

    `units` is replaced and never changed: by the keeper alone, under the lock.
    """

    def __init__(self, context: WorkerContext, name: str) -> None:
        self.name = name
        self.context = context
        self.units: list[DeviceUnit] = []
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.stopping = threading.Event()
        self._inside_told: dict[str, list[str]] = {}  # guarded by lock
        self.taking = True  # only ever goes to False
        # Model → the record by which it is taken of; guarded by lock, replaced. `wants_records`
        # asks the keeper to read them at once.
        self._in_force: Mapping[str, Deployment] = {}
        self.wants_records = threading.Event()
        self.server_offset_ms = 0.0  # server time minus monotonic time
        self.failure: BaseException | None = None
        self.doubts = 0  # guarded by lock
        # Versions of which entries were let go that are pending for us still; guarded by lock.
        self.let_go: set[tuple[str, str]] = set()
        self._leaving: list[DeviceUnit] = []  # the keeper's
        self._batches = count(1)  # guarded by lock
        self._fresh_until_ms = 0.0  # guarded by lock; after it nothing new is started
        self.heart = Heartbeat(self.connect("beat"), context, name, self.stopping, self._note_beat)
        self._heart_thread = context.make_thread("heart", self.heart, self.fail)

    def connect(self, purpose: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Executor:
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
        """Start the heart; a device process starts when a version needs it."""
        self._heart_thread.start()

    # Heart.

    def _note_beat(self, began_ms: float) -> None:
        with self.lock:
            self._fresh_until_ms = began_ms + self.context.settings.lease_ms * 2 / 3
            for unit in self.units:
                unit.core.fresh_until_ms = self._fresh_until_ms
                unit.send_plan()
            # Intake waits until its model was joined.
            self.changed.notify_all()

    # Units and lanes; called by the keeper.

    def open_lane(self, model: str, record: VersionRecord, python: Path | None) -> Lane:
        """Load a version in the device process of its environment, whose interpreter is given.

        Or in one of its own, see `Conduct.is_apart`.
        """
        name, environment = f"{model}/{record.version}", record.environment
        with self.lock:
            conduct = self.context.conduct
            is_apart = conduct.is_apart(name, environment, self.now_ms())
        key = self._own_key(environment, name) if is_apart else UnitKey(environment=environment)
        if self.context.versions_apart:
            key = UnitKey(environment=environment, version=name)
        return self._unit_for(key, python).open_lane(model, record)

    def _own_key(self, environment: str, name: str) -> UnitKey:
        own = {unit.key.version for unit in self.units} - {"", CROWD, name}
        is_full = len(own) >= self.context.settings.device_processes
        return UnitKey(environment=environment, version=CROWD if is_full else name)

    def part(self, lane: Lane) -> Lane:
        """Give a lane that is leaving a device process of its own; returns the one in its place."""
        unit = self.unit_of(lane)
        assert unit is not None
        other = self._unit_for(self._own_key(lane.record.environment, lane.name), unit.python)
        with self.lock:
            new = other.take_on(lane, unit.hand_on(lane))
        self._retire_if_empty(unit)
        return new

    def _unit_for(self, key: UnitKey, python: Path | None) -> DeviceUnit:
        for unit in self.units:
            if unit.key == key:
                return unit
        unit = DeviceUnit(self, key, python, self._batches)
        with self.lock:
            unit.core.fresh_until_ms = self._fresh_until_ms
            self.units = [*self.units, unit]
        unit.start()
        return unit

    def unit_of(self, lane: Lane) -> DeviceUnit | None:
        """The unit that has a lane; None for one that was refused without a look at it."""
        return next((u for u in self.units if u.core.lanes.get(lane.number) is lane), None)

    def adjust_lane(self, lane: Lane, record: VersionRecord) -> None:
        """Take over changed limits, here and in the device process."""
        unit = self.unit_of(lane)
        if unit is None:
            lane.record = record
        else:
            unit.adjust_lane(lane, record)

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane, and the process of an environment that nothing needs any more.

        What it held stays pending: intake takes it up again for the version's next lane.
        """
        unit = self.unit_of(lane)
        if unit is None:
            return
        if unit.drop_lane(lane):
            self._let_go(lane)
        self._retire_if_empty(unit)

    def _retire_if_empty(self, unit: DeviceUnit) -> None:
        # The worker's own Python is kept warm for the next version.
        if not unit.core.lanes and unit.key != UnitKey():
            with self.lock:
                self.units = [one for one in self.units if one is not unit]
            self._leaving = [one for one in (*self._leaving, unit) if not one.is_closed]
            unit.retire()

    def _let_go(self, lane: Lane) -> None:
        """Entries of a lane that is gone are pending for us, and nobody holds them."""
        with self.lock:
            self.doubts += 1
            self.let_go.add((lane.model, lane.version))

    def watch_limits(self) -> None:
        """Give up what is late, and end device processes that have overrun a limit."""
        with self.lock:
            for unit in self.units:
                unit.watch_limits()

    def act_on(self, deployments: Mapping[str, Deployment]) -> None:
        """Take by these deploy records from now on; the lanes fit them."""
        with self.lock:
            before, self._in_force = self._in_force, dict(deployments)
            if any(before.get(name) != record for name, record in deployments.items()):
                self.changed.notify_all()

    # The desk of the intake threads.

    def reread(self, model: str, stamp: Stamp) -> None:
        """Take nothing of a model until the keeper has read its record, `stamp` no longer."""
        with self.lock:
            known = self._in_force.get(model)
            if known is not None and known.stamp == stamp:
                self._in_force = {n: one for n, one in self._in_force.items() if n != model}
        self.wants_records.set()

    def make_intake(self, keys: ModelKeys, over: threading.Event) -> Intake:
        """What takes entries of one model until told to stop; for a thread of its own."""
        executor = self.connect("take", blocking_timeout_s(BELL_TIMEOUT_S))
        pace = Pace(back_off=PROMPT)
        loop = self.context.watchdog.watch(f"intake {keys.model}", BELL_TIMEOUT_S, pace)
        return Intake(self, keys, executor, over, loop, self.context.faults)

    def offer(self, model: str, *, wait: bool) -> Offer:
        """Lanes of a model that may take, if need be waited for up to a second."""
        with self.lock:
            offer = self._find_room(model)
            if wait and not offer.lanes and self.taking:
                self.changed.wait(_ROOM_WAIT_S)
                offer = self._find_room(model)
            return offer

    def _find_room(self, model: str) -> Offer:
        if not self.taking or self.now_ms() > self._fresh_until_ms:
            return _NOTHING
        record = self._in_force.get(model)
        if record is None or record.intake == "hold" or not self.heart.has_joined(model):
            return _NOTHING
        ready = 0
        lanes: list[tuple[Lane, int]] = []
        for unit in self.units:
            for lane in unit.core.lanes.values():
                if lane.ready and lane.model == model:
                    ready += 1
                    room = unit.core.room(lane)
                    if room > 0:
                        lanes.append((lane, room))
        return Offer(lanes, crowded=len(lanes) < ready, stamp=record.stamp)

    def hold(self, lane: Lane, entries: Sequence[tuple[Placement, WorkEntry]]) -> None:
        """Take entries over and start what can be started."""
        with self.lock:
            unit = self.unit_of(lane)
            if unit is not None:
                unit.hold(lane, entries)
            elif entries:  # its version was dropped meanwhile
                self._let_go(lane)

    def refuse(self, lane: Lane, refused: Sequence[tuple[Placed, ErrorBody]]) -> None:
        """Take entries over that cannot be run, and answer them so."""
        with self.lock:
            unit = self.unit_of(lane)
            if unit is not None:
                unit.refuse(lane, refused)
            elif refused:
                self._let_go(lane)

    def room_for_lost(self, lane: Lane) -> int:
        """Rows that a lane may take over from lost workers now."""
        with self.lock:
            unit = self.unit_of(lane)
            record = self._in_force.get(lane.model)
            if unit is None or not self.taking or record is None or record.intake == "hold":
                return 0
            return unit.core.room_for_lost(lane) if self.now_ms() <= self._fresh_until_ms else 0

    def held_since(self, model: str, taken_before_ms: float) -> list[str]:
        """Requests of a model held for a while and not run yet, as members of `due`."""
        with self.lock:
            units = self.units
            return [one for unit in units for one in unit.core.not_begun(model, taken_before_ms)]

    def drop_closed(self, model: str, closed: Collection[str]) -> None:
        """Give up what somebody else has ended: cancelled, expired, answered by another."""
        with self.lock:
            for unit in self.units:
                unit.drop_closed(model, closed)

    def hold_recovered(self, lane: Lane, entries: Sequence[RecoveredEntry]) -> None:
        """Take over what a lost worker had taken."""
        with self.lock:
            unit = self.unit_of(lane)
            if unit is not None:
                unit.take_over(lane, entries)
            elif entries:
                self._let_go(lane)

    def inside_note(self, keys: ModelKeys) -> list[Command[int]]:
        """The command that tells peers what is in the device processes; none where that is told."""
        with self.lock:
            members = [one for unit in self.units for one in unit.core.inside(keys.model)]
            if self._inside_told.get(keys.model, []) == members:
                return []
            self._inside_told[keys.model] = members
        return [fleet.note_inside(keys, self.name, members)]

    def is_held(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is in our hands, or being settled."""
        with self.lock:
            units = (*self.units, *self._leaving)
            return any(unit.core.has_entry(stream, entry_id) for unit in units)

    def server_now_ms(self) -> float:
        """The server's clock, as far as known."""
        return self.now_ms() + self.server_offset_ms

    def report_unreadable(self, what: str) -> None:
        """Tell of an entry that was not written by a router."""
        self.context.events.emit("worker.unreadable_entry", worker=self.name, reason=what)

    def report_fenced(self) -> None:
        """A take was refused: the heart finds out at once what it means."""
        self.heart.beat_soon()

    def doubt(self) -> None:
        """An answer was lost that may have handed entries to us: intake is to look."""
        with self.lock:
            self.doubts += 1

    def is_fresh(self) -> bool:
        """Whether our own beat went through of late."""
        return self.now_ms() <= self._fresh_until_ms

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
        self.context.faults.reach("worker.while_draining")
        with self.lock:
            while self._is_busy() and self.failure is None:
                left_s = (stop_at_ms - self.now_ms()) / 1000
                if self.heart.fenced.is_set():
                    return
                if left_s <= 0:
                    for unit in self.units:
                        unit.kill("it did not stop within the grace period")
                    return
                self.changed.wait(min(left_s, _DRAIN_LOOK_S))

    def _is_busy(self) -> bool:
        return any(unit.busy for unit in (*self.units, *self._leaving))

    def stop(self) -> None:
        """End all threads and device processes; leave what can be left."""
        self.stopping.set()
        self.heart.beat_soon()
        with self.lock:
            self.changed.notify_all()
            for unit in self.units:
                unit.wake()
        self._heart_thread.join(JOIN_S)
        for unit in (*self.units, *self._leaving):
            unit.join()
        try:
            self.heart.leave_all()
        except ServerError as error:
            self.context.outage.begins(error)

    def measure_server_offset(self, executor: Executor) -> None:
        """Learn how far the server's clock lies ahead of our monotonic one.

        Raises:
            ServerError: the server failed.
        """
        server_ms = executor.run(fleet.server_time())
        # As though it had been read just now: where the answer took long, requests are given up
        # later by that much, and none before its deadline.
        self.server_offset_ms = server_ms - self.now_ms()
