"""Which waiting requests follow a new deploy record, and where to; on the twin of the server."""

from dataclasses import replace

import pytest
from support.broker_wire import TENANT, wired

from batchfleet.broker import fleet, later
from batchfleet.broker.errors import StaleRecordError
from batchfleet.broker.moving import WaitingEntry
from batchfleet.router.moving import move_waiting, place_anew
from batchfleet.router.sweeping import elsewhere, has_place, promote_ripe
from batchfleet.router.view import read_model
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.canary import Canary
from batchfleet.wire.deployment import Deployment, Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys, Queue

KEYS = ModelKeys("n", "m")
FIRST = VersionRecord(version="1", bytes_per_token=4.0, limits=Limits(buckets=(16, 64)))
SECOND = VersionRecord(version="2", bytes_per_token=4.0, limits=Limits(buckets=(32, 128, 512)))
HOUR_MS = 3_600_000


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "n") as found:
        streams = fleet.queue_streams(found.keys, SECOND)
        found.run(fleet.offer(found.keys, SECOND, streams, "n2"))
        yield found


def configure(wire, **fields):
    assert wire.run(fleet.configure(wire.keys, fields, [], "c")) > 0


def switch(wire):
    configure(wire, stable=b"2")


def move(wire):
    return move_waiting(wire.executor, read_model(wire.executor, wire.keys).model)


def ids_in(wire, stream):
    return [fields[1].decode() for _, fields in wire.ask("XRANGE", stream, "-", "+")]


def second_queue(edge=32, priority="normal"):
    return KEYS.queue("2", priority, edge)


# Which.


def test_while_the_record_stays_nothing_moves(wire):
    wire.open("a", "b")
    assert move(wire) == 0
    assert ids_in(wire, wire.queue()) == ["a", "b"]


def test_after_a_switch_what_waits_follows_in_order(wire):
    names = [f"r{number:03}" for number in range(150)]
    wire.open(*names, backlog=1000)
    switch(wire)
    assert move(wire) == 150
    assert ids_in(wire, second_queue()) == names
    assert wire.ask("XLEN", wire.queue()) == 0
    assert move(wire) == 0


def test_what_a_worker_has_taken_and_what_named_the_version_stays(wire):
    wire.open("taken")
    wire.open("named", version="1")
    wire.open("free")
    wire.join()
    assert [work.id for work in wire.take(room=1)] == ["taken"]
    switch(wire)
    assert move(wire) == 1
    assert ids_in(wire, wire.queue()) == ["taken", "named"]
    assert ids_in(wire, second_queue()) == ["free"]


def test_many_that_named_the_version_hide_nobody_behind_them(wire):
    wire.open(*(f"n{number}" for number in range(130)), version="1", backlog=1000)
    wire.open("a", backlog=1000)
    switch(wire)
    assert move(wire) == 1
    assert ids_in(wire, second_queue()) == ["a"]


def test_more_bytes_than_one_call_moves_follow_as_well(wire):
    names = [*"abcdefghij"]
    wire.open(*names, inputs=b"x" * 1_000_000)
    switch(wire)
    assert move(wire) == 10
    assert ids_in(wire, second_queue(512)) == names


def test_priorities_and_buckets_are_kept_apart(wire):
    for priority in ("high", "low"):
        item = wire.item(priority, wire.enter(priority))
        wire.accept(item._replace(queue=wire.queue(16, priority)))
    switch(wire)
    assert move(wire) == 2
    assert ids_in(wire, second_queue(priority="high")) == ["high"]
    assert ids_in(wire, second_queue(priority="low")) == ["low"]


def test_what_is_closed_is_swept_out(wire):
    wire.open("a", "b")
    wire.expire("a")
    wire.ask("XADD", wire.queue(), "*", "x", "y")
    switch(wire)
    assert move(wire) == 1
    assert wire.ask("XLEN", wire.queue()) == 0


@pytest.mark.parametrize(
    ("weight", "moved"), [(b"10", 0), (b"0.01", 0), (b"0", 2), (None, 2)], ids=str
)
def test_the_share_of_a_canary_goes_back_with_it_alone(wire, weight, moved):
    """As long as it has any weight, what it was given it keeps."""
    for name in "ab":
        item = wire.item(name, wire.enter(name))
        wire.accept(item._replace(queue=second_queue(), bell=KEYS.bell("2")))
    canary = b"" if weight is None else b'{"version": "2", "weight": %s}' % weight
    configure(wire, canary=canary)
    assert move(wire) == moved
    assert ids_in(wire, wire.queue()) == [*"ab"][:moved]


def test_with_a_canary_each_goes_where_it_would_be_admitted(wire):
    names = [f"r{number}" for number in range(60)]
    third = replace(SECOND, version="3")
    wire.run(fleet.offer(wire.keys, third, fleet.queue_streams(wire.keys, third), "n3"))
    wire.open(*names, backlog=1000)
    canary = Canary("3", 50, "s")
    configure(wire, stable=b"2", canary=canary.to_wire())
    assert move(wire) == 60
    at_third = ids_in(wire, KEYS.queue("3", "normal", 32))
    assert at_third == [name for name in names if canary.takes(name)]
    assert len(ids_in(wire, second_queue())) == 60 - len(at_third) > 0


def test_by_an_old_record_nothing_moves(wire):
    wire.open("a")
    switch(wire)
    old = read_model(wire.executor, wire.keys).model
    configure(wire, stable=b"1")
    with pytest.raises(StaleRecordError):
        move_waiting(wire.executor, old)
    assert ids_in(wire, wire.queue()) == ["a"]


def test_where_the_queue_is_missing_it_waits_until_it_is_mended(wire):
    wire.open("a")
    switch(wire)
    wire.ask("DEL", second_queue())
    assert move(wire) == 0
    assert ids_in(wire, wire.queue()) == ["a"]
    wire.ask("XGROUP", "CREATE", second_queue(), "worker", "0", "MKSTREAM")
    assert move(wire) == 1


# Where to.

QUEUE = Queue("1", "high", 16)
SWITCHED = Deployment(model="m", stable="2", versions={"1": FIRST, "2": SECOND})


def place(size=0, queue=QUEUE, **values):
    fields = {"id": "a", "tenant": TENANT, **values}
    flat = [part.encode() for pair in fields.items() for part in pair]
    return place_anew(WaitingEntry(b"1-0", size, flat), queue, KEYS, SWITCHED)


@pytest.mark.parametrize(("size", "edge"), [(60, 32), (70, 32), (250, 128)])
def test_a_length_is_estimated_as_at_admission(size, edge):
    queue = QUEUE._replace(edge=16 if size < 80 else 64)
    found = place(size, queue)
    assert (found.queue, found.bell) == (second_queue(edge, "high"), KEYS.bell("2"))


def test_rows_count_and_inputs_elsewhere_are_of_the_size_that_was_said():
    assert place(400, rows="8").queue == second_queue(32, "high")
    long = QUEUE._replace(edge=64)
    assert place(0, long, inputs_at="blob", inputs_bytes="900").queue == second_queue(512, "high")


def test_a_length_that_the_caller_said_is_that_of_its_bucket():
    assert place(4000, QUEUE).queue == second_queue(32, "high")
    assert place(4, QUEUE._replace(edge=64)).queue == second_queue(128, "high")


def test_who_named_a_version_is_left_alone():
    assert place(60, version="1") is None


@pytest.mark.parametrize("fields", [[], [b"x"], [b"id", b"\xff"], [b"rows", b"-5"]])
def test_what_no_router_wrote_is_given_any_place(fields):
    """The script ends it there: nobody waits for it."""
    found = place_anew(WaitingEntry(b"1-0", 0, fields), QUEUE, KEYS, SWITCHED)
    assert found.queue == second_queue(32, "high")


# Parked ones.


def test_what_was_parked_follows_when_it_ripens(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.open("named", delay_ms=HOUR_MS, version="1")
    wire.be_ripe()
    switch(wire)
    view = read_model(wire.executor, wire.keys).model
    assert promote_ripe(wire.executor, view, lambda *_: None) == 2
    assert ids_in(wire, second_queue()) == ["a"]
    assert ids_in(wire, wire.queue()) == ["named"]


def test_what_a_canary_parked_comes_back_to_it_while_it_has_weight(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.be_ripe()
    configure(wire, stable=b"2", canary=Canary("1", 1).to_wire())
    view = read_model(wire.executor, wire.keys).model
    assert promote_ripe(wire.executor, view, lambda *_: None) == 1
    assert ids_in(wire, wire.queue()) == ["a"]


def test_a_parked_request_without_a_version_follows_the_canary(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.be_ripe()
    third = replace(SECOND, version="3")
    wire.run(fleet.offer(wire.keys, third, fleet.queue_streams(wire.keys, third), "n3"))
    configure(wire, stable=b"2", canary=Canary("3", 100).to_wire())
    view = read_model(wire.executor, wire.keys).model
    (item,) = wire.run(later.ripe(wire.keys, 10))
    assert not has_place(item, wire.keys, view.deployment)
    assert elsewhere(item, wire.keys, view.deployment).queue == KEYS.queue("3", "normal", 32)
