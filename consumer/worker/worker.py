"""One worker: an identity, its device processes, and the threads that bring them work.

Threads: one *device* thread a device process (`device_unit.py`); one *intake* thread a model takes
work; the *heartbeat* thread renews the lease; the *keeper* (`keeper.py`, the main
thread) follows the deploy records and watches limits.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ...broker import fleet, membership
from ...broker.commands import Command
from ...broker.interface import Executor
from ...wire.deployment import Deployment, Stamp, VersionRecord
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from ..batching.state import Lane
from .context import WorkerContext
from .device_unit import JOIN_S, DeviceUnit
from .heartbeat import Heartbeat
from .shared_state import SharedState
from .unit_key import CULPRITS, OVERFLOW, UnitKey, key_beside, within

# A slow fetch makes room by the passage of time only.
_ROOM_WAIT_S = 0.2
_DRAIN_LOOK_S = 0.2


class OfferedLane(NamedTuple):
    """A lane that may take `room` rows, and the unit that it is in."""

    unit: DeviceUnit
    lane: Lane
    room: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Lanes of a model with room; `crowded` where one of its lanes has none.

    `stamp` is that of the deploy record that the lanes fit. Of `draining` lanes nothing is taken,
    but what was may still have to be handed over.
    """

    lanes: Sequence[OfferedLane]
    crowded: bool
    stamp: Stamp
    draining: Sequence[OfferedLane] = ()


class Worker(SharedState):
    """Owns one identity and its units.

    `units` is replaced and never changed: by the keeper alone, under the lock.
    """

    def __init__(self, context: WorkerContext, name: str) -> None:
        super().__init__(context, name)
        self.units: list[DeviceUnit] = []
        # Model → the record by which it is taken of; guarded by lock, replaced. `wants_records`
        # asks the keeper to read them at once.
        self._records: Mapping[str, Deployment] = {}
        self.wants_records = threading.Event()
        self._inside_noted: dict[str, list[str]] = {}  # guarded by lock
        self._retired: list[DeviceUnit] = []  # the keeper's; they may not have settled all
        self._batches = count(1)  # guarded by lock
        self._fresh_until_ms = 0.0  # guarded by lock; after it nothing new is started
        beats = self.connect("beat")
        self.heartbeat = Heartbeat(beats, context, name, self.stopping, self._note_beat)
        self._heartbeat_thread = context.make_thread("heartbeat", self.heartbeat, self.fail)

    def start(self) -> None:
        """Start the heartbeat; a device process starts when a version needs it."""
        self._heartbeat_thread.start()

    # Heartbeat.

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
        """Load a version under the interpreter of its environment, beside all that serves.

        Or apart from those that behave, see `LossHistory.needs_own_process`.
        """
        name, environment = f"{model}/{record.version}", record.environment
        with self.lock:
            needs_own = self.context.losses.needs_own_process(name, environment, self.now_ms())
            serving = [unit.key for unit in self.units if unit.has_served]
        if self.context.devices.versions_apart:
            key = UnitKey(environment=environment, version=name)
        elif needs_own:
            key = self._own_key(environment, name)
        else:
            key = self._within(key_beside(environment, name, serving), OVERFLOW)
        return self._unit_for(key, python).open_lane(model, record)

    def _own_key(self, environment: str, name: str) -> UnitKey:
        return self._within(UnitKey(environment=environment, version=name), CULPRITS)

    def _within(self, key: UnitKey, instead: str) -> UnitKey:
        present = [unit.key for unit in self.units]
        return within(self.context.settings.device_processes, key, present, instead)

    def move_lane(self, lane: Lane) -> Lane:
        """Give a lane a device process of its own; returns the one in its place."""
        unit = self.unit_of(lane)
        assert unit is not None
        other = self._unit_for(self._own_key(lane.record.environment, lane.name), unit.python)
        with self.lock:
            new = other.open_lane(lane.model, lane.record)
            new.was_ready, new.is_draining = lane.was_ready, lane.is_draining
            other.core.move_lane_in(new, unit.core.move_lane_out(lane))
        self._retire_empty()
        return new

    def _unit_for(self, key: UnitKey, python: Path | None) -> DeviceUnit:
        for unit in self.units:
            if unit.key == key:
                return unit
        unit = DeviceUnit(self, key, python, self._batches, self.note_inside)
        with self.lock:
            unit.core.fresh_until_ms = self._fresh_until_ms
            self.units = [*self.units, unit]
        unit.start()
        return unit

    def serving(self) -> list[str]:
        """See `SharedState`."""
        lanes = (lane for unit in self.units for lane in unit.core.lanes.values())
        return [lane.name for lane in lanes if lane.ready]

    def unit_of(self, lane: Lane) -> DeviceUnit | None:
        """The unit that has a lane; None for one that was refused without a look at it."""
        with_lane = (unit for unit in self.units if unit.core.lanes.get(lane.number) is lane)
        return next(with_lane, None)

    def adjust_lane(self, lane: Lane, record: VersionRecord) -> None:
        """Take over changed limits, here and in the device process."""
        unit = self.unit_of(lane)
        if unit is None:
            lane.adjust(record)
        else:
            unit.adjust_lane(lane, record)

    def drain_lane(self, lane: Lane) -> None:
        """Have a lane take nothing more; what it holds is answered."""
        with self.lock:
            lane.is_draining, lane.is_handed_over = True, False
            self.changed.notify_all()

    def resume_lane(self, lane: Lane) -> None:
        """Have a lane take again, though it may have drained."""
        with self.lock:
            lane.is_draining = False
            self.changed.notify_all()

    def is_drained(self, lane: Lane) -> bool:
        """Whether all that a draining lane held is settled."""
        unit = self.unit_of(lane)
        with self.lock:
            return lane.is_handed_over and (unit is None or not unit.core.requests.has_any_of(lane))

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane, and the process that nothing needs any more.

        What it held stays pending: intake takes it up again for the version's next lane.
        """
        unit = self.unit_of(lane)
        if unit is None:
            return
        if unit.drop_lane(lane):
            self.note_orphaned(lane)
        self._retire_empty()

    def _retire_empty(self) -> None:
        """End the processes that nobody needs; the worker's own Python is kept warm if alone."""
        is_alone = not any(unit.core.lanes for unit in self.units)
        kept = [u for u in self.units if u.core.lanes or (is_alone and u.key == UnitKey())]
        gone = [unit for unit in self.units if unit not in kept]
        if not gone:
            return
        with self.lock:
            self.units = kept
        self._retired = [unit for unit in (*self._retired, *gone) if not unit.is_closed]
        for unit in gone:
            unit.retire()

    def watch_limits(self) -> None:
        """Give up what is late, and end device processes that have overrun a limit."""
        with self.lock:
            for unit in self.units:
                unit.watch_limits()

    def use_records(self, deployments: Mapping[str, Deployment]) -> None:
        """Take by these deploy records from now on; the lanes fit them."""
        with self.lock:
            before, self._records = self._records, dict(deployments)
            if any(before.get(name) != record for name, record in deployments.items()):
                self.changed.notify_all()

    # Called by the threads that bring work.

    def reread(self, model: str, stamp: Stamp) -> None:
        """Take nothing of a model until the keeper has read its record, `stamp` no longer."""
        with self.lock:
            known = self._records.get(model)
            if known is not None and known.stamp == stamp:
                others = {name: of for name, of in self._records.items() if name != model}
                self._records = others
        self.wants_records.set()

    def offer(self, model: str, *, wait: bool) -> Offer:
        """Lanes of a model that may take, if need be waited for a little."""
        with self.lock:
            offer = self._find_room(model)
            if wait and not offer.lanes and self.taking:
                self.changed.wait(_ROOM_WAIT_S)
                offer = self._find_room(model)
            return offer

    def _find_room(self, model: str) -> Offer:
        lanes = [
            OfferedLane(unit, lane, unit.core.room(lane, self.now_ms()))
            for unit in self.units
            for lane in unit.core.lanes.values()
            if lane.model == model
        ]
        draining = [o for o in lanes if o.lane.is_draining and not o.lane.is_handed_over]
        record = self._record_to_take_by(model)
        if record is None or not self.heartbeat.has_joined(model):
            return Offer((), crowded=True, stamp=Stamp(), draining=draining)
        with_room = [offered for offered in lanes if offered.room > 0]
        able = sum(offered.lane.is_able for offered in lanes)
        return Offer(with_room, len(with_room) < able, record.stamp, draining)

    def note_handed_over(self, lane: Lane) -> None:
        """Intake holds in its hands nothing of a draining lane any more."""
        with self.lock:
            lane.is_handed_over = lane.is_draining

    def offer_for_lost(self, lane: Lane) -> OfferedLane | None:
        """A lane if it may take over from lost workers now."""
        with self.lock:
            unit = self.unit_of(lane)
            if unit is None or self._record_to_take_by(lane.model) is None:
                return None
            room = unit.core.room_for_lost(lane, self.now_ms())
        return OfferedLane(unit, lane, room) if room > 0 else None

    def _record_to_take_by(self, model: str) -> Deployment | None:
        """The record of a model of which entries may be taken now; the lock is held."""
        record = self._records.get(model) if self.taking and self.is_fresh() else None
        return None if record is None or record.intake == "hold" else record

    def is_fresh(self) -> bool:
        """Whether our own beat went through of late."""
        return self.now_ms() <= self._fresh_until_ms

    def not_begun(self, model: str, taken_before_ms: float) -> list[str]:
        """Requests of a model held for a while and not run yet, as members of `due`."""
        with self.lock:
            found = [unit.core.not_begun(model, taken_before_ms) for unit in self.units]
        return [member for members in found for member in members]

    def drop_closed(self, model: str, closed: Collection[str]) -> None:
        """Give up what somebody else has ended: cancelled, expired, answered by another."""
        with self.lock:
            for unit in self.units:
                unit.drop_closed(model, closed)

    def note_inside(self, keys: ModelKeys) -> list[Command[int]]:
        """The command that tells peers what is in the device processes; none where they know."""
        with self.lock:
            inside = [held for unit in self.units for held in unit.core.requests.inside()]
            members = [held.member for held in inside if held.lane.model == keys.model]
            if self._inside_noted.get(keys.model, []) == members:
                return []
            self._inside_noted[keys.model] = members
        return [membership.note_inside(keys, self.name, members)]

    def has_entry(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is in our hands, or being settled."""
        with self.lock:
            units = (*self.units, *self._retired)
            return any(unit.core.requests.has_entry(stream, entry_id) for unit in units)

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
            while any(unit.busy for unit in (*self.units, *self._retired)) and not self.failure:
                left_s = (stop_at_ms - self.now_ms()) / 1000
                if self.heartbeat.fenced.is_set():
                    return
                if left_s <= 0:
                    for unit in self.units:
                        unit.kill("it did not stop within the grace period")
                    return
                self.changed.wait(min(left_s, _DRAIN_LOOK_S))

    def stop(self) -> None:
        """End all threads and device processes; leave what can be left."""
        self.stopping.set()
        self.heartbeat.beat_soon()
        with self.lock:
            self.changed.notify_all()
            for unit in self.units:
                unit.wake()
        self._heartbeat_thread.join(JOIN_S)
        for unit in (*self.units, *self._retired):
            unit.join()
        try:
            self.heartbeat.leave_all()
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
