"""Recovery on the twin: what no router wrote must not keep a lost worker from being forgotten."""

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Watch
from support.worker_context import worker_context

from batchfleet.broker import fleet, membership
from batchfleet.consumer.batching.state import Lane
from batchfleet.consumer.worker.recovery import Recovery
from batchfleet.consumer.worker.shared_state import SharedState
from batchfleet.consumer.worker.worker import OfferedLane
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Deployment


class Unit:
    """A device process with room."""

    def __init__(self):
        self.held = []

    def take_over(self, _, entries):
        self.held += [recovered.entry.id for recovered in entries]

    def refuse(self, _, refused):
        assert not refused


class LivingWorker(SharedState):
    """A worker with one unit."""

    def __init__(self, context, name):
        super().__init__(context, name)
        self.unit = Unit()

    def is_fresh(self):
        return True

    def offer_for_lost(self, lane):
        return OfferedLane(self.unit, lane, 8)


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "bf") as found:
        yield found


def test_an_entry_that_no_router_wrote_is_told_and_removed(wire, watch):
    worker = LivingWorker(worker_context(watch, wire.broker), "w2")
    wire.open("a")
    foreign = ("id", "a", "tenant", TENANT, "deadline", "soon", "inputs", "{}")
    wire.join("w1")
    wire.take("w1")
    wire.ask("XADD", wire.queue(), "*", *foreign)
    wire.ask("XREADGROUP", "GROUP", "worker", "w1", "COUNT", 9, "STREAMS", wire.queue(), ">")
    wire.join(worker.name)
    assert wire.run(membership.leave(wire.keys, "w1"))
    deployment = Deployment.from_hash("m", wire.run(fleet.deploy_hash(wire.keys)))
    Recovery(worker, wire.executor).tick({"m": deployment}, [Lane(1, "m", RECORD)])
    assert worker.unit.held == ["a"]
    assert watch.log.names().count("worker.unreadable_entry") == 1
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (1, 1)
    assert wire.run(membership.lost(wire.keys)) == [], "nothing keeps it from being forgotten"
