"""What a pump takes over from routers that are gone, and by which record it acts, on the twin."""

from types import SimpleNamespace

import pytest
from support.broker_wire import INPUTS, RECORD, TENANT, wired

from batchfleet.broker import claiming, fleet, requests
from batchfleet.router.admission import Situation
from batchfleet.router.pump import Admitter, Pump
from batchfleet.router.view import read_model
from batchfleet.service.clock import ManualClock
from batchfleet.service.fault_points import FaultPoints
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.reply import decode_reply

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
    fresh = wire.run(claiming.claim_ingress(wire.ingress, "r-alive", 0, 2_590)).entry_ids
    left = [entry for entry, _ in wire.ask("XRANGE", wire.ingress, "-", "+")][len(fresh) :]
    step = Handled()
    pump = Pump(wire.executor, step, wire.keys, "r-heir", [TENANT])
    assert pump.claim(IDLE_MS) == len(left) == 10
    assert step.entries == left
    assert pump.claim(IDLE_MS) == 0


# A deploy record that changes under the pump.


class Desk:
    """A router that has read the model's record, and reads it again when it is asked to."""

    def __init__(self, wire, on_refresh=lambda: None):
        self._wire = wire
        self._on_refresh = on_refresh
        self.refreshes = 0
        self.faults = FaultPoints()
        self.view = self.read()

    def read(self):
        return read_model(self._wire.executor, self._wire.keys).model

    def situation(self):
        return None if self.view is None else Situation(model=self.view)

    def refresh(self):
        self.refreshes += 1
        self.view = self.read()
        found = self.situation()
        self._on_refresh()
        return found

    def failed(self, error):
        raise error

    def dropped(self, kind, count):
        raise AssertionError((kind, count))

    def ahead(self, tenant, entry_id):
        pass


@pytest.fixture
def listed(wire):
    wire.run(fleet.enlist_model(wire.keys.namespace, "m"))
    return wire


def entries_of(wire):
    pending = wire.run(claiming.reread_ingress(wire.ingress, "router-1", "0", 100))
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
    desk = Desk(listed)
    configure(listed, intake=b"refuse")
    step = Admitter(listed.executor, listed.keys, desk)
    assert step.handle(TENANT, entries_of(listed))
    assert (desk.refreshes, step.opened, error_of(listed, "a")) == (1, 0, "unavailable")


def test_what_was_closed_and_is_open_again_is_accepted(listed):
    """Nobody gets a refusal that was true a moment ago."""
    configure(listed, intake=b"refuse")
    desk = Desk(listed)
    listed.enter("a")
    configure(listed, intake=b"open")
    step = Admitter(listed.executor, listed.keys, desk)
    assert step.handle(TENANT, entries_of(listed))
    assert (step.opened, listed.replies("a")) == (1, [])


def test_late_refusals_are_held_against_the_record_as_well(listed):
    """The backlog is full when it is accepted, and raised before it is refused."""
    configure(listed, **{"set:backlog": b"1"})
    listed.enter("a")
    listed.enter("b")
    desk = Desk(listed)

    def raise_backlog(moment):
        if moment == "router.after_accept" and desk.refreshes == 0:
            configure(listed, **{"set:backlog": b"10"})

    desk.faults = SimpleNamespace(reach=raise_backlog)
    step = Admitter(listed.executor, listed.keys, desk)
    assert step.handle(TENANT, entries_of(listed))
    assert (desk.refreshes, step.opened) == (1, 2)
    assert listed.replies("b") == []


def test_what_was_refused_once_is_not_accepted_by_the_next_record(listed):
    """Of two that are handled together, one is refused, the other one meets another record."""
    configure(listed, **{"set:backlog": b"1"})
    listed.open("full", backlog=1)
    listed.ask("XADD", listed.ingress, "*", "id", "no", "inputs", "x", "version", "2")
    listed.run(requests.read_ingress([listed.ingress], "router-1", 100, 0))
    listed.enter("busy")
    desk = Desk(listed)
    changes = []

    def change(moment):
        if moment == "router.after_accept" and not changes:
            changes.append(moment)
            configure(listed, **{"set:backlog": b"10"})

    desk.faults = SimpleNamespace(reach=change)
    step = Admitter(listed.executor, listed.keys, desk)
    assert step.handle(TENANT, entries_of(listed))
    assert error_of(listed, "no") == "unknown_version"
    assert step.opened == 1, "the other one"
    assert listed.ingress_left() == (0, 0)


def test_entries_of_a_model_whose_record_is_gone_wait_for_it(listed):
    """A foreign hand has deleted it; routers make it anew, and what was submitted is accepted."""
    listed.enter("a")
    desk = Desk(listed)
    record = listed.run(fleet.deploy_hash(listed.keys))
    listed.ask("DEL", listed.keys.deploy)
    pump = Pump(
        listed.executor, Admitter(listed.executor, listed.keys, desk), listed.keys, "router-1",
        [TENANT],
    )  # fmt: skip
    submit(listed, "b")  # or the pump would wait
    assert pump.run_once() == 1
    assert listed.ingress_left() == (2, 2)
    streams = fleet.queue_streams(listed.keys, RECORD)
    listed.run(fleet.mend(listed.keys, record, [TENANT], streams, "mended"))
    desk.refresh()
    submit(listed, "c")
    assert pump.run_once() == 1
    assert listed.ask("ZCARD", listed.keys.due) == 3
    assert listed.ingress_left() == (0, 0)


def test_a_record_that_changes_faster_than_it_is_read_ends_in_no_loop(listed):
    listed.enter("a")
    desk = Desk(listed, on_refresh=lambda: configure(listed, intake=b"open"))
    configure(listed, intake=b"open")
    step = Admitter(listed.executor, listed.keys, desk)
    assert not step.handle(TENANT, entries_of(listed)), "it is left for the next pass"
    assert desk.refreshes == 3
    assert listed.replies("a") == []
    assert listed.ingress_left() == (1, 1)


def test_without_a_record_the_rest_is_not_even_tried(listed):
    """However many wait: a pass that can end nothing must cost little."""
    for at in range(200):
        submit(listed, f"r{at}")
    desk = Desk(listed)
    listed.ask("DEL", listed.keys.deploy)
    step = Admitter(listed.executor, listed.keys, desk)
    pump = Pump(listed.executor, step, listed.keys, "router-1", [TENANT])
    assert pump.run_once() == 200
    assert (desk.refreshes, pump.has_left) == (1, True)
    assert listed.ingress_left() == (200, 200)
