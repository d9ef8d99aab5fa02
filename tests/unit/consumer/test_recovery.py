"""Recovery on the twin: what no router wrote must not keep a lost worker from being forgotten."""

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Watch

from batchfleet.broker import fleet
from batchfleet.consumer.batching.state import Lane
from batchfleet.consumer.worker.context import WorkerContext
from batchfleet.consumer.worker.recovery import Recovery
from batchfleet.service.events import Events
from batchfleet.service.settings import Settings
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Deployment


class Heir:
    """A living worker with room."""

    name = "w2"

    def __init__(self, watch):
        self._watch = watch
        self.held = []
        self.unreadable = []

    def now_ms(self):
        return self._watch.clock.monotonic_ms()

    def is_fresh(self):
        return True

    def room_for_lost(self, _):
        return 8

    def hold_recovered(self, _, entries):
        self.held += [one.entry.id for one in entries]

    def refuse(self, _, refused):
        assert not refused

    def report_unreadable(self, what):
        self.unreadable.append(what)


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "bf") as found:
        yield found


def test_an_entry_that_no_router_wrote_is_told_and_removed(wire, watch):
    heir = Heir(watch)
    context = WorkerContext(
        settings=Settings(),
        events=Events(watch.log),
        clock=watch.clock,
        watchdog=watch.watchdog,
        broker=wire.broker,
        open_link=lambda _: None,
    )
    wire.open("a")
    foreign = ("id", "a", "tenant", TENANT, "deadline", "soon", "inputs", "{}")
    wire.join("w1")
    wire.take("w1")
    wire.ask("XADD", wire.queue(), "*", *foreign)
    wire.ask("XREADGROUP", "GROUP", "worker", "w1", "COUNT", 9, "STREAMS", wire.queue(), ">")
    wire.join(heir.name)
    assert wire.run(fleet.leave(wire.keys, "w1"))
    deployment = Deployment.from_hash("m", wire.run(fleet.deploy_hash(wire.keys)))
    Recovery(heir, wire.executor, context).tick({"m": deployment}, [Lane(1, "m", RECORD)])
    assert heir.held == ["a"]
    assert len(heir.unreadable) == 1
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (1, 1)
    assert wire.run(fleet.lost(wire.keys)) == [], "nothing keeps it from being forgotten"
