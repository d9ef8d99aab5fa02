"""Answers of take that get lost: what they handed out is pending, and nobody holds it."""

import threading

import pytest
from support.broker_wire import RECORD, wired
from support.loops import Watch
from support.worker_context import worker_context

from batchfleet.broker.errors import UnreachableError
from batchfleet.consumer.batching.state import Lane
from batchfleet.consumer.worker.intake import Intake
from batchfleet.consumer.worker.shared_state import SharedState
from batchfleet.consumer.worker.worker import Offer, OfferedLane
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Stamp

# So many turns find whatever is there to be found.
OFFERS_MAX = 8


class Stopping:
    """Never set; whoever waits for it lets time pass."""

    def __init__(self, clock):
        self._clock = clock

    def is_set(self):
        return False

    def wait(self, timeout_s):
        self._clock.advance(timeout_s * 1000)
        return False


class RoomyWorker(SharedState):
    """A worker that is its own unit; stops once it holds so many requests, or finds no more."""

    def __init__(self, enough, watch):
        super().__init__(worker_context(watch, MemoryBroker(MemoryServer())), "w1")
        self.stopping = Stopping(watch.clock)
        self.held = []
        self.offers = 0
        self._enough = enough
        self._lane = Lane(1, "m", RECORD)

    def offer(self, model, *, wait):  # noqa: ARG002 - as the real one
        self.offers += 1
        self.taking = self.taking and self.offers < OFFERS_MAX
        return Offer([OfferedLane(self, self._lane, 8)], crowded=True, stamp=Stamp(1, "n"))

    def take(self, _, entries):
        self.held += [taken.entry for taken in entries]
        if len(self.held) >= self._enough:
            self.taking = False

    def has_entry(self, stream, entry_id):
        return any((held.stream, held.entry_id) == (stream, entry_id) for held in self.held)

    def note_inside(self, _):
        return []


class LosingExecutor:
    """Carries everything out, and loses the answers of the exchanges that `lost` numbers."""

    def __init__(self, executor, lost):
        self._executor = executor
        self._lost = lost
        self._exchanges = 0

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run_each(self, commands):
        answers = self._executor.run_each(commands)
        self._exchanges += 1
        if self._exchanges in self._lost:
            raise UnreachableError("the answer was lost")
        return answers


@pytest.mark.parametrize("lost", [{1}, {1, 2}, {2}])
def test_what_a_lost_answer_handed_out_is_held_once(lost):
    watch = Watch()
    worker = RoomyWorker(12, watch)
    with wired(MemoryBroker(MemoryServer()), "n") as wire, watch.loop() as loop:
        names = [f"r{at}" for at in range(12)]
        wire.open(*names)
        wire.join(worker.name)
        executor = LosingExecutor(wire.executor, lost)
        Intake(worker, wire.keys, executor, threading.Event(), loop).run()
    assert sorted(one.id for one in worker.held) == sorted(names)
    assert worker.lost_answers == len(lost)
