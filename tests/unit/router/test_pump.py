"""What a pump takes over from routers that are gone, and by which record it acts, on the twin."""

from types import SimpleNamespace

import pytest
from support.broker_wire import INPUTS, RECORD, TENANT, wired
from support.loops import Lines
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, ingress
from batchfleet.router.admission import Situation
from batchfleet.router.admitter import Admitter
from batchfleet.router.pump import Pump
from batchfleet.router.shared import SharedState
from batchfleet.router.view import read_model
from batchfleet.service.events import Events
from batchfleet.service.fault_points import FaultPoints
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.reply import decode_reply

IDLE_MS = 3_000


class Handled:
    """In the place of an admitter: keeps the entries that it is given."""

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
    fresh = wire.run(ingress.claim(wire.ingress, "r-alive", 0, 2_590)).entry_ids
    left = [entry for entry, _ in wire.ask("XRANGE", wire.ingress, "-", "+")][len(fresh) :]
    step = Handled()
    pump = Pump(wire.executor, step, wire.keys, "r-heir", [TENANT])
    assert pump.claim(IDLE_MS) == len(left) == 10
    assert step.entries == left
    assert pump.claim(IDLE_MS) == 0


# A deploy record that changes under the pump.


class Shared(SharedState):
    """What a keeper has read of the model; counts how often it is asked to look again."""

    def __init__(self, wire):
        super().__init__("router-1", wire.broker, Events(Lines()), ManualClock(), FaultPoints())
        self._wire = wire
        self.looks_asked = 0
        self.look_soon = SimpleNamespace(set=self._count)
        self.look()

    def _count(self):
        self.looks_asked += 1

    def look(self):
        model = read_model(self._wire.executor, self._wire.keys).model
        self.situations = {} if model is None else {"m": Situation(model=model)}

    def report_failed(self, _, error):
        raise error

    def report_dropped(self, kind, count):
        raise AssertionError((kind, count))


@pytest.fixture
def listed(wire):
    wire.run(fleet.enlist_model(wire.keys.namespace, "m"))
    return wire


def entries_of(wire):
    pending = wire.run(ingress.reread(wire.ingress, "router-1", "0", 100))
    return [(entry.entry_id, entry.fields) for entry in pending]


def submit(wire, request_id):
    assert wire.ask("XADD", wire.ingress, "*", "id", request_id, "inputs", INPUTS)


def configure(wire, **fields):
    assert wire.run(fleet.configure(wire.keys, fields, (), "another"))


def error_of(wire, request_id):
    (reply,) = wire.replies(request_id)
    return decode_reply(reply).error["name"]


def test_the_record_is_read_again_at_once_and_decides(listed):
    listed.enter("a")
    shared = Shared(listed)
    configure(listed, intake=b"refuse")
    admitter = Admitter(listed.executor, listed.keys, shared)
    assert admitter.handle(TENANT, entries_of(listed))
    assert (shared.looks_asked, admitter.opened, error_of(listed, "a")) == (1, 0, "unavailable")


def test_what_was_closed_and_is_open_again_is_accepted(listed):
    """Nobody gets a refusal that was true a moment ago."""
    configure(listed, intake=b"refuse")
    shared = Shared(listed)
    listed.enter("a")
    configure(listed, intake=b"open")
    admitter = Admitter(listed.executor, listed.keys, shared)
    assert admitter.handle(TENANT, entries_of(listed))
    assert (admitter.opened, listed.replies("a")) == (1, [])


def test_late_refusals_are_held_against_the_record_as_well(listed):
    """The backlog is full when it is accepted, and raised before it is refused."""
    configure(listed, **{"set:backlog": b"1"})
    listed.enter("a")
    listed.enter("b")
    shared = Shared(listed)

    def raise_backlog(moment):
        if moment == "router.after_accept" and shared.looks_asked == 0:
            configure(listed, **{"set:backlog": b"10"})

    shared.faults = SimpleNamespace(reach=raise_backlog)
    admitter = Admitter(listed.executor, listed.keys, shared)
    assert admitter.handle(TENANT, entries_of(listed))
    assert (shared.looks_asked, admitter.opened) == (1, 2)
    assert listed.replies("b") == []


def test_what_was_refused_once_is_not_accepted_by_the_next_record(listed):
    """Of two that are handled together, one is refused, the other one meets another record."""
    configure(listed, **{"set:backlog": b"1"})
    listed.open("full", backlog=1)
    listed.ask("XADD", listed.ingress, "*", "id", "no", "inputs", "x", "version", "2")
    listed.run(ingress.read([listed.ingress], "router-1", 100, 0))
    listed.enter("busy")
    shared = Shared(listed)
    changes = []

    def change(moment):
        if moment == "router.after_accept" and not changes:
            changes.append(moment)
            configure(listed, **{"set:backlog": b"10"})

    shared.faults = SimpleNamespace(reach=change)
    admitter = Admitter(listed.executor, listed.keys, shared)
    assert admitter.handle(TENANT, entries_of(listed))
    assert error_of(listed, "no") == "unknown_version"
    assert admitter.opened == 1, "the other one"
    assert listed.ingress_left() == (0, 0)


def test_entries_of_a_model_whose_record_is_gone_wait_for_it(listed):
    """Somebody else has deleted it; routers recreate it, and what was submitted is accepted."""
    listed.enter("a")
    shared = Shared(listed)
    record = listed.run(fleet.deploy_hash(listed.keys))
    listed.ask("DEL", listed.keys.deploy)
    pump = Pump(
        listed.executor, Admitter(listed.executor, listed.keys, shared), listed.keys, "router-1",
        [TENANT],
    )  # fmt: skip
    submit(listed, "b")  # or the pump would wait
    assert pump.run_once() == 1
    assert listed.ingress_left() == (2, 2)
    streams = fleet.queue_streams(listed.keys, RECORD)
    listed.run(fleet.mend(listed.keys, record, [TENANT], streams, "mended"))
    shared.look()
    submit(listed, "c")
    assert pump.run_once() == 1
    assert listed.ask("ZCARD", listed.keys.due) == 3
    assert listed.ingress_left() == (0, 0)


def test_a_record_that_changes_faster_than_it_is_read_ends_in_no_loop(listed):
    listed.enter("a")
    shared = Shared(listed)
    shared.faults = SimpleNamespace(
        reach=lambda moment: moment == "router.before_accept" and configure(listed, intake=b"open")
    )
    admitter = Admitter(listed.executor, listed.keys, shared)
    assert not admitter.handle(TENANT, entries_of(listed)), "it is left for the next pass"
    assert shared.looks_asked == 3
    assert listed.replies("a") == []
    assert listed.ingress_left() == (1, 1)


def test_without_a_record_the_rest_is_not_even_tried(listed):
    """However many wait: a pass that can end nothing must cost little."""
    for at in range(200):
        submit(listed, f"r{at}")
    shared = Shared(listed)
    listed.ask("DEL", listed.keys.deploy)
    admitter = Admitter(listed.executor, listed.keys, shared)
    pump = Pump(listed.executor, admitter, listed.keys, "router-1", [TENANT])
    assert pump.run_once() == 200
    assert (shared.looks_asked, pump.has_left) == (1, True)
    assert listed.ingress_left() == (200, 200)
