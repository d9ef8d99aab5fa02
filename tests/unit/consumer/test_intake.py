"""Intake over the in-memory twin of the broker: what a refused take means."""

import threading

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Watch, watched_loop

from batchfleet.broker import fleet, requests
from batchfleet.consumer.batching.state import Lane
from batchfleet.consumer.worker.intake import Intake, Offer
from batchfleet.service.fault_points import FaultPoints
from batchfleet.service.watchdog import PROMPT
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Stamp


class Desk:
    """A worker that has room, and that the broker does not know."""

    name = "buried"
    taking = True
    doubts = 0
    stamp = Stamp(1, "n")

    def __init__(self, on_offer):
        self.stopping = threading.Event()
        self.refused = 0
        self.reread_of = []
        self._on_offer = on_offer

    def offer(self, model, *, wait):  # noqa: ARG002 - the port's shape
        self._on_offer()
        return Offer([(Lane(1, model, RECORD), 8)], crowded=False, stamp=self.stamp)

    def inside_note(self, _):
        return []

    def server_now_ms(self):
        return 0.0

    def reread(self, model, stamp):
        self.reread_of.append((model, stamp))

    def report_fenced(self):
        self.refused += 1

    def doubt(self):
        self.doubts += 1


class Holder(Desk):
    """A living worker with one lane, which ends after so many turns."""

    name = "w1"

    def __init__(self, over, turns, on_turn):
        super().__init__(lambda: None)
        self.held = []
        self.unreadable = []
        self._left = turns
        self._over = over
        self._on_turn = on_turn

    def offer(self, model, *, wait):
        self._left -= 1
        if self._left == 0:
            self._over.set()
        self._on_turn(self._left)
        return super().offer(model, wait=wait)

    def hold(self, lane, entries):  # noqa: ARG002 - the port's shape
        self.held += [entry.id for _, entry in entries]

    def report_unreadable(self, what):
        self.unreadable.append(what)

    def is_held(self, stream, entry_id):  # noqa: ARG002 - the port's shape
        return False


@pytest.mark.parametrize("doubts", [0, 1])
def test_a_doubt_of_anybodys_makes_intake_look_at_what_is_pending(doubts):
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
        desk = Holder(over, 2, lambda _: None)
        desk.doubts = doubts
        Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints()).run()
    assert desk.held == ["lost"] * doubts


@pytest.mark.parametrize("is_deployed", [False, True])
def test_after_a_refused_take_intake_goes_on_until_it_is_told_to_end(is_deployed):
    """The heart finds out what it means; a record that is gone for now may come back."""
    over, watch = threading.Event(), Watch()
    desk = Desk(lambda: None)
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watch.loop(back_off=PROMPT) as loop:
        if not is_deployed:
            wire.ask("DEL", wire.keys.deploy)
        intake = Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints())
        pauses = []
        while desk.refused < 2:
            pauses.append(intake.step())
            watch.clock.advance(1000 * pauses[-1])
        assert min(pauses) > 0
        assert max(pauses) <= 1
        over.set()
        assert intake.step() is None


def test_a_refused_take_of_a_model_that_the_worker_left_itself_is_no_news():
    over = threading.Event()
    desk = Desk(over.set)
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints()).run()
    assert not desk.refused


def test_a_foreign_key_in_the_place_of_a_bell_gives_way():
    over, watch = threading.Event(), Watch()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watch.loop() as loop:
        wire.join()
        wire.open("a")
        wire.ask("DEL", wire.bell)
        desk = Holder(over, 4, lambda left: left == 2 and wire.ask("SET", wire.bell, "foreign"))
        intake = Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints())
        while (pause_s := intake.step()) is not None:
            watch.clock.advance(1000 * pause_s)
        assert not wire.ask("EXISTS", wire.bell)
    assert set(desk.held) == {"a"}
    assert desk.doubts == 1, "it was told as any refusal is"


def test_an_entry_that_no_router_wrote_is_told_and_removed():
    """Its id is that of an open request: `take` cannot tell it from one of a router's."""
    over = threading.Event()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        wire.join()
        wire.open("a")
        foreign = ("id", "a", "tenant", TENANT, "deadline", "soon", "inputs", "{}")
        entry_id = wire.ask("XADD", wire.queue(), "*", *foreign).decode()
        wire.open("b")
        desk = Holder(over, 3, lambda _: None)
        Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints()).run()
        assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (2, 2)
    assert desk.held == ["a", "b"]
    assert [entry_id in text for text in desk.unreadable] == [True]


def test_by_an_old_record_nothing_is_taken_before_it_was_read_again():
    """The bell that rang meanwhile is heard no second time: the next look does not wait for it."""
    over = threading.Event()
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watched_loop() as loop:
        wire.join()
        wire.open("a")

        def change(left):
            if left == 1:
                desk.stamp = wire.stamp()

        desk = Holder(over, 3, change)
        wire.run(fleet.configure(wire.keys, {"intake": b"hold"}, (), "another"))
        intake = Intake(desk, wire.keys, wire.executor, over, loop, FaultPoints())
        intake.step()
        assert (desk.held, desk.reread_of) == ([], [("m", Stamp(1, "n"))])
        assert (desk.doubts, wire.pending(wire.queue())) == (0, 0)
        assert wire.ask("LPOP", wire.bell) == b"1"
        intake.step()
    assert desk.held == ["a"]
