"""Intake: takes entries of one model whenever there is room. One thread a model.

No worker ever blocks on a work stream: it waits on bells and reads through `take`, which refuses a
worker that is not among the living. The wait and the takes behind it go out together, so that an
entry is in hand one answer after its bell. A bell token that gets lost costs a second, never an
entry; an answer that gets lost is asked for again, since what was handed out is pending.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...broker import fleet, membership, requests
from ...broker.commands import Command
from ...broker.errors import FencedError, NoGroupError, StaleRecordError, UnusableKeyError
from ...broker.interface import Executor
from ...broker.requests import Entry
from ...service.fault_points import FaultPoints
from ...service.watchdog import Loop
from ...wire.deployment import Stamp, VersionRecord
from ...wire.errors import ErrorBody, ServerError
from ...wire.keys import ModelKeys
from ...wire.work import WorkEntry, parse_work
from ..batching.state import Lane, Placement
from ..batching.stream_order import StreamOrder, placement_of
from .blobs import Placed, in_portions, lies_in_blob, read_blobs

BELL_TIMEOUT_S = 1.0
# A version that is full now may have room before the others' bells ring.
_CROWDED_BELL_S = 0.05
_REREAD_COUNT = 64

Taken = list[tuple[str, list[Entry]]]


@dataclass(frozen=True, slots=True)
class Offer:
    """Lanes with room, and how much; `crowded` where a lane of the model has none.

    `stamp` is that of the deploy record that the lanes fit.
    """

    lanes: Sequence[tuple[Lane, int]]
    crowded: bool
    stamp: Stamp


class Desk(Protocol):
    """What intake needs of its worker."""

    name: str
    stopping: threading.Event
    taking: bool
    doubts: int

    def offer(self, model: str, *, wait: bool) -> Offer:
        """Lanes of a model that may take, if need be waited for a while; perhaps none."""

    def hold(self, lane: Lane, entries: Sequence[tuple[Placement, WorkEntry]]) -> None:
        """Take entries over."""

    def refuse(self, lane: Lane, refused: Sequence[tuple[Placed, ErrorBody]]) -> None:
        """Take entries over that cannot be run, and answer them so."""

    def is_held(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is in the worker's hands, or being settled."""

    def inside_note(self, keys: ModelKeys) -> list[Command[int]]:
        """The command that tells peers what is in the device process; none where that is told."""

    def server_now_ms(self) -> float:
        """The server's clock, as far as known."""

    def report_unreadable(self, what: str) -> None:
        """An entry was not written by a router."""

    def report_fenced(self) -> None:
        """A take was refused, since this worker is not among the living of the model."""

    def doubt(self) -> None:
        """An answer was lost that may have handed entries to us."""

    def reread(self, model: str, stamp: Stamp) -> None:
        """Offer nothing of a model before its deploy record, `stamp` no longer, was read again."""

    def report_outage(self, error: ServerError) -> None:
        """The server gave no answer, or an error."""


class Intake:
    """Takes entries of one model on a connection of its own."""

    def __init__(
        self,
        desk: Desk,
        keys: ModelKeys,
        executor: Executor,
        over: threading.Event,
        loop: Loop,
        faults: FaultPoints,
    ) -> None:
        self._desk = desk
        self._keys = keys
        self._executor = executor
        self._over = over
        self._loop = loop
        self._faults = faults
        self._orders: dict[str, tuple[tuple[int, ...], StreamOrder]] = {}
        self._left_behind = True  # a take may have left something: look without waiting
        # Version → how many doubts of the worker's were settled: an answer that was lost may have
        # handed us entries that we do not hold.
        self._settled: dict[str, int] = {}

    def run(self) -> None:
        """Take until the worker stops taking or the model is not wanted any more."""
        try:
            while (pause_s := self.step()) is not None:
                if pause_s:
                    self._desk.stopping.wait(pause_s)
        finally:
            self.close()

    def step(self) -> float | None:
        """Wait for a bell and take once; see `Stepped`.

        Raises:
            ServerError: trying again would not help.
        """
        desk = self._desk
        if not desk.taking or desk.stopping.is_set() or self._over.is_set():
            return None
        if (delay_s := self._loop.delay_s()) > 0:
            return delay_s
        try:
            was_asked = self._turn()
        except FencedError:
            # Once the worker has left a model that was undeployed, the keeper ends this thread.
            if not self._over.is_set():
                desk.report_fenced()
            self._loop.broke()
            return self._loop.delay_s()
        except ServerError as error:
            desk.doubt()
            self._loop.failed(error)
            return self._loop.delay_s()
        if was_asked:
            self._loop.worked()
        else:
            self._loop.passed()
        return 0.0

    def close(self) -> None:
        """End the watch, and the connection."""
        self._loop.end()
        self._executor.close()

    def _turn(self) -> bool:
        """Take once where there is room; returns whether the server was asked for entries."""
        offer = self._desk.offer(self._keys.model, wait=False)
        if not offer.lanes:
            # Full: peers should know what is inside before we wait for room.
            self._executor.run_all(self._desk.inside_note(self._keys))
            offer = self._desk.offer(self._keys.model, wait=True)
        if not offer.lanes:
            return False
        self._settle_doubts([lane for lane, _ in offer.lanes])
        commands: list[Command[Any]] = [*self._desk.inside_note(self._keys)]
        bells = [] if self._left_behind else self._bells(offer)
        if bells:
            wait_s = _CROWDED_BELL_S if offer.crowded else BELL_TIMEOUT_S
            commands.append(requests.wait_for_bell(bells, wait_s))
        asked = [
            self._order(lane.record).streams(self._desk.server_now_ms()) for lane, _ in offer.lanes
        ]
        for (lane, room), streams in zip(offer.lanes, asked, strict=True):
            commands.append(
                requests.take(self._keys, self._desk.name, offer.stamp, lane.record, streams, room)
            )
        self._left_behind = False
        answers = self._executor.run_each(commands)
        errors = [answer for answer in answers if isinstance(answer, ServerError)]
        faults = [error for error in errors if not isinstance(error, StaleRecordError)]
        if len(faults) < len(errors):
            self._left_behind = True  # the bell will not ring again for what waits
            self._desk.reread(self._keys.model, offer.stamp)
        for (lane, room), streams, taken in zip(
            offer.lanes, asked, answers[-len(asked) :], strict=True
        ):
            if not isinstance(taken, ServerError):
                self._hold(lane, room, streams, taken)
        if bells and isinstance(answers[-len(asked) - 1], UnusableKeyError):
            # A foreign key in the place of one gives way; a token lost with it costs a second.
            self._executor.run(membership.forget_bells(bells))
        if faults:
            raise faults[0]
        return True

    def _bells(self, offer: Offer) -> list[str]:
        bells = [self._keys.bell(lane.version) for lane, _ in offer.lanes]
        return [*bells, self._keys.worker_bell(self._desk.name)]

    def _hold(self, lane: Lane, room: int, asked: Sequence[str], taken: Taken) -> None:
        entries = self._read(taken)
        newest = {entry.stream: float(entry.accepted_ms) for _, entry in entries}
        self._order(lane.record).note(asked, newest, self._desk.server_now_ms())
        if not entries:
            return
        self._faults.reach("worker.after_take")
        weight_max = requests.weight_max(lane.record)
        self._left_behind |= sum(min(e.rows, weight_max) for _, e in entries) >= room
        self._hand_over(lane, entries)

    def _hand_over(self, lane: Lane, entries: Sequence[Placed]) -> None:
        """Give entries to the worker; those whose inputs are still to be read come after."""
        blobs = [placed for placed in entries if lies_in_blob(placed[1])]
        if not blobs:
            self._desk.hold(lane, entries)
            return
        self._desk.hold(lane, [placed for placed in entries if not lies_in_blob(placed[1])])
        most = lane.record.limits.max_request_bytes
        for portion in in_portions(blobs):
            found, refused = read_blobs(self._executor, self._keys, portion, most)
            self._desk.hold(lane, found)
            self._desk.refuse(lane, refused)

    def _read(self, taken: Taken) -> list[tuple[Placement, WorkEntry]]:
        entries: list[tuple[Placement, WorkEntry]] = []
        for stream, raw_entries in taken:
            placement = placement_of(stream)
            for entry_id, flat in raw_entries:
                try:
                    entries.append((placement, parse_work(stream, entry_id, flat or ())))
                except ValueError as error:
                    self._desk.report_unreadable(f"{stream} {entry_id.decode()}: {error}")
                    self._executor.run_all(requests.drop_work(stream, [entry_id]))
        return entries

    def _settle_doubts(self, lanes: Sequence[Lane]) -> None:
        doubts = self._desk.doubts
        behind = [lane for lane in lanes if self._settled.get(lane.version, 0) != doubts]
        if behind:
            self._take_again(behind)
            self._settled.update((lane.version, doubts) for lane in behind)

    def _take_again(self, lanes: Sequence[Lane]) -> None:
        """Hold what the server has handed to us in an answer that never came."""
        for lane in lanes:
            for stream in fleet.queue_streams(self._keys, lane.record):
                try:
                    pending = self._pending(stream)
                except (NoGroupError, UnusableKeyError):
                    continue  # what was pending went with it; routers tell, and make it anew
                lost = [entry for entry in pending if not self._desk.is_held(stream, entry[0])]
                if lost:
                    self._hand_over(lane, self._read([(stream, lost)]))

    def _pending(self, stream: str) -> list[Entry]:
        found: list[Entry] = []
        after = "0"
        while True:
            command = requests.reread_work(stream, self._desk.name, after, _REREAD_COUNT)
            page = self._executor.run(command)
            found += page
            if len(page) < _REREAD_COUNT:
                return found
            after = page[-1][0].decode()

    def _order(self, record: VersionRecord) -> StreamOrder:
        known = self._orders.get(record.version)
        if known is None or known[0] != record.edges:
            order = StreamOrder(self._keys, record, self._desk.server_now_ms())
            known = self._orders[record.version] = (record.edges, order)
        return known[1]
