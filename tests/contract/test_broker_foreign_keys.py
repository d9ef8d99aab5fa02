"""Keys of the wrong type, on every kind of broker: they spoil no promise, and stop no batch."""

import pytest
from support.broker_wire import ANSWER, INPUTS

from batchfleet.broker import later, membership, requests
from batchfleet.broker.errors import UnusableKeyError
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.requests import Accepted, Finished

HOUR_MS = 3_600_000
LAST_ID = "18446744073709551615-18446744073709551615"


def spoil(wire, key):
    """Put a text where something else belongs."""
    wire.ask("SET", key, "foreign")


def settle_all(wire, **changes):
    """Take everything and settle it in one call; returns the outcomes."""
    ends = [
        wire.end(work.id, ANSWER, work.stream, work.entry_id)._replace(**changes)
        for work in wire.take()
    ]
    return wire.finish("w1", *ends)


# Finish.


def settles_all_beside_a_new_journal(wire):
    wire.open("a", "b", "c")
    wire.join()
    outcomes = settle_all(wire, journal=b"{}")
    lines = wire.ask("XRANGE", wire.keys.journal, "-", "+")
    return (
        outcomes == [Finished.ANSWERED] * 3
        and [wire.replies(name) for name in "abc"] == [[ANSWER]] * 3
        and (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)
        and [fields for _, fields in lines] == [[b"line", b"{}"]] * 3
    )


def test_a_journal_of_the_wrong_type_stops_no_answer_and_is_started_again(wire):
    spoil(wire, wire.keys.journal)
    assert settles_all_beside_a_new_journal(wire)


def test_a_journal_whose_ids_are_used_up_stops_no_answer_and_is_started_again(served_wire):
    served_wire.ask("XADD", served_wire.keys.journal, LAST_ID, "line", "the last that fits")
    assert settles_all_beside_a_new_journal(served_wire)


def test_a_foreign_blob_of_inputs_costs_its_letter_the_inputs_and_nothing_else(wire):
    wire.open("a", inputs_at="blob")
    wire.ask("RPUSH", wire.keys.blob("default", "a"), "foreign")
    wire.join()
    assert settle_all(wire, is_dead=True, has_blob=True) == [Finished.ANSWERED]
    assert wire.replies("a") == [ANSWER]
    ((_, letter),) = wire.ask("XRANGE", wire.keys.dead, "-", "+")
    assert b"inputs_at" in letter
    assert not wire.ask("EXISTS", wire.keys.blob("default", "a"))


# Bells.


def test_accept_rings_a_bell_of_the_wrong_type_again(wire):
    spoil(wire, wire.bell)
    wire.open("a", "b")
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"]
    wire.join()
    assert [work.id for work in wire.take()] == ["a", "b"]


def test_take_rings_a_bell_of_the_wrong_type_again(wire):
    wire.open("a", "b")
    wire.join()
    wire.ask("DEL", wire.bell)
    spoil(wire, wire.bell)
    assert [work.id for work in wire.take(room=1)] == ["a"]
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"]


def test_promote_rings_a_bell_of_the_wrong_type_again(wire):
    wire.open("a", "b", delay_ms=HOUR_MS)
    spoil(wire, wire.bell)
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED), ("b", Promoted.MOVED)]
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"]
    assert wire.parked() == (0, 0)


def test_a_worker_whose_bell_is_of_the_wrong_type_is_woken(wire):
    wire.join()
    spoil(wire, wire.keys.worker_bell("w1"))
    assert wire.run(membership.ring(wire.keys, "w1"))
    assert wire.run(requests.wait_for_bell([wire.keys.worker_bell("w1")], 1))


# What parks.


@pytest.mark.parametrize("name", ["later", "parked"])
def test_a_delayed_request_that_cannot_be_parked_leaves_nothing_open(wire, name):
    key = getattr(wire.keys, name)
    spoil(wire, key)
    first, second, third = (wire.enter(each) for each in "abc")
    items = [
        wire.item("a", first),
        wire.item("b", second, delay_ms=HOUR_MS),
        wire.item("c", third),
    ]
    assert wire.accept(*items) == [Accepted.OK, Accepted.STALE, Accepted.OK]
    assert wire.run(requests.open_requests(wire.keys)) == 2
    assert wire.ingress_left() == (1, 1), "its entry is kept"
    if name == "later":
        assert wire.ask("XLEN", wire.keys.parked) == 0
    wire.ask("DEL", key)
    assert wire.accept(items[1]) == [Accepted.OK]
    assert wire.parked() == (1, 1)


@pytest.mark.parametrize("name", ["later", "parked"])
def test_what_cannot_be_retried_is_still_its_workers_to_answer(wire, name):
    wire.open("a", retries=2)
    wire.join()
    (work,) = wire.take()
    spoil(wire, getattr(wire.keys, name))
    assert wire.retry(work) is Retried.STALE
    assert wire.pending(work.stream) == 1
    if name == "later":
        assert wire.ask("XLEN", wire.keys.parked) == 0
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.replies("a") == [ANSWER]


@pytest.mark.parametrize("name", ["later", "parked"])
def test_a_look_at_what_is_ripe_tells_of_a_foreign_key(wire, name):
    wire.open("a", delay_ms=HOUR_MS)
    wire.be_ripe()
    wire.ask("DEL", getattr(wire.keys, name))
    spoil(wire, getattr(wire.keys, name))
    with pytest.raises(UnusableKeyError):
        wire.run(later.ripe(wire.keys, 10))


@pytest.mark.parametrize("name", ["later", "parked", "due"])
def test_what_is_ripe_is_kept_and_the_foreign_key_told(wire, name):
    wire.open("a", "b", delay_ms=HOUR_MS)
    wire.be_ripe()
    items = wire.run(later.ripe(wire.keys, 10))
    wire.ask("DEL", getattr(wire.keys, name))
    spoil(wire, getattr(wire.keys, name))
    with pytest.raises(UnusableKeyError):
        wire.run(later.promote(wire.keys, wire.stamp(), items))
    if name != "later":
        assert wire.ask("ZCARD", wire.keys.later) == 2
    if name != "parked":
        assert wire.ask("XLEN", wire.keys.parked) == 2
    assert wire.ask("XLEN", wire.queue()) == 0


@pytest.mark.parametrize(
    "fields",
    [
        ("written", "by hand"),
        ("queue", "nowhere", "bell", b"\xff\xfe"),
        ("queue", "{other}:x", "bell", "y", "id", "a", "tenant", b"\xff"),
    ],
)
def test_what_others_have_parked_spoils_only_itself(wire, fields):
    wire.open("a", delay_ms=HOUR_MS)
    parked_id = wire.ask("XADD", wire.keys.parked, "*", *fields)
    wire.ask("ZADD", wire.keys.later, 1, parked_id)
    wire.open("b", delay_ms=HOUR_MS)
    wire.be_ripe()
    items = wire.run(later.ripe(wire.keys, 10))
    assert sorted(item.request_id for item in items if item.parked_id != parked_id) == ["a", "b"]
    (foreign,) = (item for item in items if item.parked_id == parked_id)
    placed = [
        item if item is not foreign else item._replace(queue=wire.queue(), bell=wire.bell)
        for item in items
    ]
    outcomes = wire.run(later.promote(wire.keys, wire.stamp(), placed))
    assert [outcome for item, outcome in zip(items, outcomes, strict=True) if item is foreign] == [
        Promoted.CLOSED
    ]
    assert wire.parked() == (0, 0)
    wire.join()
    assert sorted((work.id, work.inputs) for work in wire.take()) == [("a", INPUTS), ("b", INPUTS)]


def test_a_name_that_is_no_entry_id_is_forgotten(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.ask("ZADD", wire.keys.later, 1, "nonsense")
    wire.be_ripe()
    assert sorted(wire.promote()) == [("", Promoted.GONE), ("a", Promoted.MOVED)]
    assert wire.parked() == (0, 0)
