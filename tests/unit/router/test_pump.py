"""What a pump takes over from routers that are gone, on the twin of the server."""

import pytest
from support.broker_wire import TENANT, wired

from batchfleet.broker import claiming
from batchfleet.broker.memory.executors import MemoryBroker
from batchfleet.broker.memory.server import MemoryServer
from batchfleet.router.pump import Pump
from batchfleet.service.clock import ManualClock

IDLE_MS = 3_000


class Handled:
    """In the place of a pump's step: keeps the entries that it is given."""

    def __init__(self):
        self.entries = []

    def handle(self, tenant, entries):
        assert tenant == TENANT
        self.entries += [entry for entry, _ in entries]
        return True


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def wire(clock):
    with wired(MemoryBroker(MemoryServer(clock)), "n") as found:
        yield found


def test_what_a_dead_router_had_read_is_found_behind_what_is_fresh(wire, clock):
    """One look sees 2,560 entries: the pump follows the cursor to the end."""
    for at in range(2_600):
        wire.enter(f"r{at}")
    clock.advance(IDLE_MS)
    fresh = wire.run(claiming.claim_ingress(wire.ingress, "r-alive", 0, 2_590)).entries
    left = [entry for entry, _ in wire.ask("XRANGE", wire.ingress, "-", "+")][len(fresh) :]
    step = Handled()
    pump = Pump(wire.executor, step, wire.keys, "r-heir", [TENANT])
    assert pump.claim(IDLE_MS) == len(left) == 10
    assert step.entries == left
    assert pump.claim(IDLE_MS) == 0
