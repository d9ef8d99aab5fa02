"""Intake over the in-memory twin of the broker: what a refused take means."""

import threading

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Watch, watched_loop
from support.worker_context import worker_context

from batchfleet.broker import fleet, requests
from batchfleet.consumer.batching.state import Lane
from batchfleet.consumer.worker.intake import Intake
from batchfleet.consumer.worker.shared_state import SharedState
from batchfleet.consumer.worker.worker import Offer, OfferedLane
from batchfleet.service.watchdog import PROMPT
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Stamp


class Heart:
    """Counts how often it was asked to beat."""

    def __init__(self):
        self.asked = 0

    def beat_soon(self):
        self.asked += 1


class BuriedWorker(SharedState):
    """A worker that has room, and that the broker does not know."""

    name = "buried"

    def __init__(self, on_offer, watch=None):
        super().__init__(worker_context(watch or Watch(), MemoryBroker(MemoryServer())), self.name)
        self.heartbeat = Heart()
        self.reread_of = []
        self.stamp = Stamp(1, "n")
        self._on_offer = on_offer

    def offer(self, model, *, wait):  # noqa: ARG002 - as the real one
        self._on_offer()
        offered = OfferedLane(self, Lane(1, model, RECORD), 8)
        return Offer([offered], crowded=False, stamp=self.stamp)

    def note_inside(self, _):
        return []

    def reread(self, model, stamp):
        self.reread_of.append((model, stamp))


class LivingWorker(BuriedWorker):
    """A worker that is its own unit, with one lane, and ends after so many turns."""

    name = "w1"

    def __init__(self, over, turns, on_turn):
        self.watch = Watch()
        super().__init__(lambda: None, self.watch)
        self.held = []
        self._left = turns
        self._over = over
        self._on_turn = on_turn

    def offer(self, model, *, wait):
        self._left -= 1
        if self._left == 0:
            self._over.set()
        self._on_turn(self._left)
        return super().offer(model, wait=wait)

    def take(self, lane, entries):  # noqa: ARG002 - as the real one
        self.held += [taken.entry.id for taken in entries]

    def has_entry(self, stream, entry_id):  # noqa: ARG002 - as the real one
        return False


@pytest.mark.parametrize("lost_answers", [0, 1])
def test_a_lost_answer_of_any_thread_makes_intake_read_what_is_pending(lost_answers):
    """As after a recovery whose answer was lost: pending for us, and nobody was told."""
    over = threading.Event()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        wire.join()
        wire.open("lost")
        wire.run(
            requests.take(
                wire.keys, "w1", wire.stamp(), RECORD, fleet.queue_streams(wire.keys, RECORD), 9
            )
        )
        worker = LivingWorker(over, 2, lambda _: None)
        worker.lost_answers = lost_answers
        Intake(worker, wire.keys, wire.executor, over, loop).run()
    assert worker.held == ["lost"] * lost_answers


@pytest.mark.parametrize("is_deployed", [False, True])
def test_after_a_refused_take_intake_continues_until_it_is_told_to_end(is_deployed):
    """The heartbeat finds out what it means; a record that is gone for now may come back."""
    over, watch = threading.Event(), Watch()
    worker = BuriedWorker(lambda: None)
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watch.loop(back_off=PROMPT) as loop:
        if not is_deployed:
            wire.ask("DEL", wire.keys.deploy)
        intake = Intake(worker, wire.keys, wire.executor, over, loop)
        pauses = []
        while worker.heartbeat.asked < 2:
            pauses.append(intake.step())
            watch.clock.advance(1000 * pauses[-1])
        assert min(pauses) > 0
        assert max(pauses) <= 1
        over.set()
        assert intake.step() is None


def test_a_refused_take_of_a_model_that_the_worker_left_itself_is_no_news():
    over = threading.Event()
    worker = BuriedWorker(over.set)
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        Intake(worker, wire.keys, wire.executor, over, loop).run()
    assert not worker.heartbeat.asked


def test_a_foreign_key_in_the_place_of_a_bell_gives_way():
    over, watch = threading.Event(), Watch()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watch.loop() as loop:
        wire.join()
        wire.open("a")
        wire.ask("DEL", wire.bell)
        worker = LivingWorker(
            over, 4, lambda left: left == 2 and wire.ask("SET", wire.bell, "foreign")
        )
        intake = Intake(worker, wire.keys, wire.executor, over, loop)
        while (pause_s := intake.step()) is not None:
            watch.clock.advance(1000 * pause_s)
        assert not wire.ask("EXISTS", wire.bell)
    assert set(worker.held) == {"a"}
    assert worker.lost_answers == 1, "it was told as any refusal is"


def test_an_entry_that_no_router_wrote_is_told_and_removed():
    """Its id is that of an open request: `take` cannot tell it from one of a router's."""
    over = threading.Event()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        wire.join()
        wire.open("a")
        foreign = ("id", "a", "tenant", TENANT, "deadline", "soon", "inputs", "{}")
        entry_id = wire.ask("XADD", wire.queue(), "*", *foreign).decode()
        wire.open("b")
        worker = LivingWorker(over, 3, lambda _: None)
        Intake(worker, wire.keys, wire.executor, over, loop).run()
        assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (2, 2)
    assert worker.held == ["a", "b"]
    (event,) = [fields for name, fields in worker.watch.log.lines if "unreadable" in name]
    assert entry_id in event["reason"]


def test_by_an_old_record_nothing_is_taken_before_it_was_read_again():
    """The bell that rang meanwhile is heard no second time: the next look does not wait for it."""
    over = threading.Event()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        wire.join()
        wire.open("a")

        def change(left):
            if left == 1:
                worker.stamp = wire.stamp()

        worker = LivingWorker(over, 3, change)
        wire.run(fleet.configure(wire.keys, {"intake": b"hold"}, (), "another"))
        intake = Intake(worker, wire.keys, wire.executor, over, loop)
        intake.step()
        assert (worker.held, worker.reread_of) == ([], [("m", Stamp(1, "n"))])
        assert (worker.lost_answers, wire.pending(wire.queue())) == (0, 0)
        assert wire.ask("LPOP", wire.bell) == b"1"
        intake.step()
    assert worker.held == ["a"]
