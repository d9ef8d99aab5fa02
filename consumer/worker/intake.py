"""Intake: takes entries of one model whenever there is room. One thread a model.

No worker ever blocks on a work stream: it waits on bells and reads through `take`, which refuses a
worker that is not among the living. The wait and the takes behind it go out together, so that an
entry is in hand one answer after its bell. A bell token that gets lost costs a second, never an
entry; an answer that gets lost is asked for again, since what was handed out is pending.
"""

import threading
from collections.abc import Sequence
from typing import Any

from ...broker import fleet, membership, requests
from ...broker.commands import Command
from ...broker.errors import FencedError, NoGroupError, StaleRecordError, UnusableKeyError
from ...broker.interface import Executor
from ...broker.requests import Entry
from ...service.lifecycle import run_steps
from ...service.watchdog import Loop
from ...wire.deployment import VersionRecord
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from ...wire.work import parse_work
from ..batching.state import TakenEntry
from ..batching.stream_order import StreamOrder, placement_of
from .blobs import hand_over
from .worker import Offer, OfferedLane, Worker

BELL_TIMEOUT_S = 1.0
# A version that is full now may have room before the others' bells ring.
_CROWDED_BELL_S = 0.05
_REREAD_COUNT = 64

Streams = list[tuple[str, list[Entry]]]


class Intake:
    """Takes entries of one model on a connection of its own."""

    def __init__(
        self,
        worker: Worker,
        keys: ModelKeys,
        executor: Executor,
        over: threading.Event,
        loop: Loop,
    ) -> None:
        self._worker = worker
        self._keys = keys
        self._executor = executor
        self._over = over
        self._loop = loop
        self._orders: dict[str, tuple[tuple[int, ...], StreamOrder]] = {}
        self._left_behind = True  # a take may have left something: look without waiting
        # Version → the worker's count of lost answers when what is pending was last read.
        self._reread_at: dict[str, int] = {}

    def run(self) -> None:
        """Take until the worker stops taking or the model is not wanted any more."""
        run_steps(self, self._worker.stopping.wait)

    def step(self) -> float | None:
        """Wait for a bell and take once; see `Stepped`.

        Raises:
            ServerError: trying again would not help.
        """
        worker = self._worker
        if not worker.taking or worker.stopping.is_set() or self._over.is_set():
            return None
        if (delay_s := self._loop.delay_s()) > 0:
            return delay_s
        try:
            was_asked = self._take_once()
        except FencedError:
            # Once the worker has left a model that was undeployed, the keeper ends this thread.
            if not self._over.is_set():
                worker.heartbeat.beat_soon()  # the heartbeat finds out what it means
            self._loop.broke()
            return self._loop.delay_s()
        except ServerError as error:
            worker.note_lost_answer()
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

    def _take_once(self) -> bool:
        """Take once where there is room; returns whether the server was asked for entries."""
        offer = self._offer()
        for drained in offer.draining:
            self._reread_after_loss([drained])
            self._worker.note_handed_over(drained.lane)
        if not offer.lanes:
            return False
        self._reread_after_loss(offer.lanes)
        bells = [] if self._left_behind else self._bells(offer)
        now_ms = self._worker.server_now_ms()
        asked = [self._order(offered.lane.record).streams(now_ms) for offered in offer.lanes]
        self._left_behind = False
        answers = self._executor.run_each(self._commands(offer, bells, asked))
        errors = [answer for answer in answers if isinstance(answer, ServerError)]
        faults = [error for error in errors if not isinstance(error, StaleRecordError)]
        if len(faults) < len(errors):
            self._left_behind = True  # the bell will not ring again for what waits
            self._worker.reread(self._keys.model, offer.stamp)
        takes = answers[-len(asked) :]
        for offered, streams, taken in zip(offer.lanes, asked, takes, strict=True):
            if not isinstance(taken, ServerError):
                self._take(offered, streams, taken)
        if bells and isinstance(answers[-len(asked) - 1], UnusableKeyError):
            # A foreign key in the place of one gives way; a token lost with it costs a second.
            self._executor.run(membership.forget_bells(bells))
        if faults:
            raise faults[0]
        return True

    def _offer(self) -> Offer:
        """Lanes with room, if need be waited for."""
        offer = self._worker.offer(self._keys.model, wait=False)
        if offer.lanes:
            return offer
        # Full: peers should know what is inside before we wait for room.
        self._executor.run_all(self._worker.note_inside(self._keys))
        return self._worker.offer(self._keys.model, wait=True)

    def _commands(
        self, offer: Offer, bells: Sequence[str], asked: Sequence[Sequence[str]]
    ) -> list[Command[Any]]:
        """One trip: what is inside, the wait for a bell, and a take for each lane."""
        commands: list[Command[Any]] = [*self._worker.note_inside(self._keys)]
        if bells:
            wait_s = _CROWDED_BELL_S if offer.crowded else BELL_TIMEOUT_S
            commands.append(requests.wait_for_bell(bells, wait_s))
        name = self._worker.name
        for (_, lane, room), streams in zip(offer.lanes, asked, strict=True):
            take = requests.take(self._keys, name, offer.stamp, lane.record, streams, room)
            commands.append(take)
        return commands

    def _bells(self, offer: Offer) -> list[str]:
        bells = [self._keys.bell(offered.lane.version) for offered in offer.lanes]
        return [*bells, self._keys.worker_bell(self._worker.name)]

    def _take(self, offered: OfferedLane, asked: Sequence[str], streams: Streams) -> None:
        record = offered.lane.record
        entries = self._read(streams)
        newest = {taken.entry.stream: float(taken.entry.accepted_ms) for taken in entries}
        self._order(record).note(asked, newest, self._worker.server_now_ms())
        if not entries:
            return
        self._worker.context.faults.reach("worker.after_take")
        weight_max = requests.weight_max(record)
        weight = sum(min(taken.entry.rows, weight_max) for taken in entries)
        self._left_behind |= weight >= offered.room
        self._hand_over(offered, entries)

    def _hand_over(self, offered: OfferedLane, entries: Sequence[TakenEntry]) -> None:
        hand_over(self._executor, self._keys, offered, entries, offered.unit.take)

    def _read(self, streams: Streams) -> list[TakenEntry]:
        entries: list[TakenEntry] = []
        for stream, raw_entries in streams:
            placement = placement_of(stream)
            for entry_id, flat in raw_entries:
                try:
                    work = parse_work(stream, entry_id, flat or ())
                    entries.append(TakenEntry(placement, work))
                except ValueError as error:
                    self._worker.report_unreadable(f"{stream} {entry_id.decode()}: {error}")
                    self._executor.run_all(requests.drop_work(stream, [entry_id]))
        return entries

    def _reread_after_loss(self, lanes: Sequence[OfferedLane]) -> None:
        """Hold what the server has handed to us in an answer that never came."""
        lost_answers = self._worker.lost_answers
        for offered in lanes:
            version = offered.lane.version
            if self._reread_at.get(version, 0) != lost_answers:
                self._take_pending(offered)
                self._reread_at[version] = lost_answers

    def _take_pending(self, offered: OfferedLane) -> None:
        has_entry = self._worker.has_entry
        for stream in fleet.queue_streams(self._keys, offered.lane.record):
            try:
                pending = self._pending(stream)
            except (NoGroupError, UnusableKeyError):
                continue  # what was pending went with it; routers report it, and create it again
            lost = [entry for entry in pending if not has_entry(stream, entry[0])]
            if lost:
                self._hand_over(offered, self._read([(stream, lost)]))

    def _pending(self, stream: str) -> list[Entry]:
        found: list[Entry] = []
        after = "0"
        while True:
            command = requests.reread_work(stream, self._worker.name, after, _REREAD_COUNT)
            page = self._executor.run(command)
            found += page
            if len(page) < _REREAD_COUNT:
                return found
            after = page[-1][0].decode()

    def _order(self, record: VersionRecord) -> StreamOrder:
        known = self._orders.get(record.version)
        if known is None or known[0] != record.edges:
            order = StreamOrder(self._keys, record, self._worker.server_now_ms())
            known = self._orders[record.version] = (record.edges, order)
        return known[1]
