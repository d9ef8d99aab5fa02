"""X3: what a router reads at once is bounded, and what is over the contract ends; on the twin."""

import pytest
from support.broker_wire import TENANT, wired
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, ingress, listing
from batchfleet.broker.errors import OverlongAnswerError
from batchfleet.broker.requests import HEAD_FIELD_BYTES_MAX, HEAD_FIELDS_MAX
from batchfleet.router.admitter import Admitter
from batchfleet.router.pump import Pump
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.limits import ENTRY_BYTES_MAX
from batchfleet.wire.reply import decode_reply

from .test_pump import Shared

MB = 1024 * 1024
LARGE = bytes(ENTRY_BYTES_MAX + 1)


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer(ManualClock())), "n") as found:
        found.run(fleet.enlist_model(found.keys.namespace, "m"))
        yield found


class Told(Shared):
    def __init__(self, wire):
        super().__init__(wire)
        self.told = []

    def report_dropped(self, kind, count):
        self.told.append((kind, count))


def pump_of(wire, shared, router="router-1"):
    return Pump(
        wire.executor, Admitter(wire.executor, wire.keys, shared), wire.keys, router, [TENANT]
    )


def add(wire, *fields):
    return wire.ask("XADD", wire.ingress, "*", *fields)


def error_of(wire, request_id):
    (reply,) = wire.replies(request_id)
    return decode_reply(reply).error["name"]


def test_a_burst_of_large_entries_is_read_in_portions(wire):
    """X3: each of them is allowed; all of them are more than a router shall hold."""
    names = [f"r{at}" for at in range(12)]
    for name in names:
        add(wire, "id", name, "inputs", bytes(3 * MB))
    with pytest.raises(OverlongAnswerError):
        wire.run(ingress.read([wire.ingress], "router-1", 100, 0))
    portions, after = [], "0"
    while found := wire.run(ingress.reread(wire.ingress, "router-1", after, 100)):
        portions.append(len(found))
        after = found[-1].entry_id.decode()
    assert portions == [1] * len(names)
    pump = pump_of(wire, Told(wire))
    add(wire, "id", "last", "inputs", "{}")
    assert pump.run_once() == 1
    assert wire.ask("ZCARD", wire.keys.due) == len(names) + 1


def test_an_overlong_read_is_no_fault_and_is_followed_by_another(wire):
    """X3: nothing is lost of what came with it."""
    shared = Told(wire)
    pump = pump_of(wire, shared)
    add(wire, "id", "good", "inputs", "{}")
    for name in ("large", "larger"):
        add(wire, "id", name, "meta", "mine", "inputs", LARGE)
    add(wire, "id", "late", "inputs", "{}")
    assert pump.run_once() == 0
    assert pump.has_left
    add(wire, "id", "next", "inputs", "{}")
    assert pump.run_once() == 1
    assert wire.ask("ZCARD", wire.keys.due) == 3
    assert [error_of(wire, name) for name in ("large", "larger")] == ["too_large"] * 2
    assert decode_reply(wire.replies("large")[0]).meta == "mine"
    assert wire.ingress_left() == (0, 0)
    assert not shared.told


def test_what_is_claimed_is_measured_as_well(wire):
    """X3: a router that died of it does not hand it on."""
    add(wire, "id", "large", "inputs", LARGE)
    wire.run(ingress.read([wire.ingress], "r-gone", 100, 0))
    assert pump_of(wire, Told(wire)).claim(0) == 1
    assert error_of(wire, "large") == "too_large"
    assert wire.ingress_left() == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(("inputs", LARGE), id="without an id"),
        pytest.param(("id", "a", "id", "b", "inputs", LARGE), id="with two"),
        pytest.param(("id", "a", "cancel", "1", LARGE, ""), id="that takes back"),
    ],
)
def test_one_that_nobody_can_be_answered_for_is_told_as_too_large(wire, fields):
    """X3."""
    add(wire, *fields)
    wire.run(ingress.read([wire.ingress], "r-gone", 100, 0))
    shared = Told(wire)
    pump_of(wire, shared).claim(0)
    assert shared.told == [("too_large", 1)]
    assert wire.ingress_left() == (0, 0)


def test_it_waits_where_the_deploy_record_is_not_there(wire):
    """X3."""
    add(wire, "id", "large", "inputs", LARGE)
    wire.run(ingress.read([wire.ingress], "r-gone", 100, 0))
    shared = Told(wire)
    shared.situations = {}
    pump = pump_of(wire, shared)
    pump.claim(0)
    assert pump.has_left
    assert wire.ingress_left() == (1, 1)


def test_a_list_of_requests_shows_nothing_that_is_large(wire):
    """X3: `requests list`, `dead list`: any field may be large, not only inputs."""
    long_value, long_name = bytes(HEAD_FIELD_BYTES_MAX + 1), bytes(HEAD_FIELD_BYTES_MAX + 1)
    many = [part for at in range(HEAD_FIELDS_MAX + 5) for part in (f"f{at}", "x")]
    add(wire, "id", "a", "meta", long_value, long_name, "x", "inputs", "{}", *many)
    ((_, fields),) = wire.run(listing.heads(wire.ingress, "-", 10))
    assert fields[:6] == [b"id", b"a", b"meta", b"", b"inputs", b""]
    assert len(fields) == 2 * (HEAD_FIELDS_MAX - 1)
