"""Stats: what ends a request counts it, once, for its version; on every server."""

import pytest
from support.broker_wire import ANSWER, REFUSAL, TENANT

from batchfleet.broker import fleet
from batchfleet.broker.ending import CANCELLED, bare_envelopes, end_requests
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.wire.errors import ErrorBody, ErrorKind
from batchfleet.wire.stats import VersionStats, counts_of, stats_fields


def stats(wire, version="1"):
    return wire.run(fleet.stats(wire.keys)).get(version, VersionStats())


def held(wire, *names):
    wire.open(*names)
    wire.join()
    return wire.take()


def counted(wire, work, version="1", error=None, **cost):
    end = wire.end(work.id, ANSWER, work.stream, work.entry_id)
    return end._replace(counts=counts_of(version, error, **cost))


def test_nothing_is_counted_before_anything_has_ended(wire):
    assert wire.run(fleet.stats(wire.keys)) == {}
    held(wire, "a")
    assert wire.run(fleet.stats(wire.keys)) == {}


def test_an_answer_is_counted_with_what_it_cost(wire):
    first, second = held(wire, "a", "b")
    items = [
        counted(wire, first, rows=3, device_us=1500),
        counted(wire, second, rows=2, device_us=500),
    ]
    wire.finish("w1", *items)
    found = stats(wire)
    assert (found.ok, found.total, found.rows, found.device_ms) == (2, 2, 5, 2.0)
    assert sum(found.latency) == 2


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (ErrorKind.BAD_INPUTS, "caller"),
        (ErrorKind.ATTEMPTS_EXHAUSTED, "fleet"),
        (ErrorKind.MODEL_ERROR, "model"),
    ],
)
def test_an_error_is_counted_for_its_source_and_has_no_latency(wire, kind, field):
    (work,) = held(wire, "a")
    wire.finish("w1", counted(wire, work, error=kind, rows=1, device_us=700))
    assert stats(wire) == VersionStats(**{field: 1}, rows=1, device_ms=0.7)


def test_versions_are_counted_apart(wire):
    first, second, third = held(wire, "a", "b", "c")
    wire.finish(
        "w1",
        counted(wire, first),
        counted(wire, second, "2"),
        counted(wire, third, "2", ErrorKind.MODEL_ERROR),
    )
    one, two = stats(wire, "1"), stats(wire, "2")
    assert ((one.ok, one.model), (two.ok, two.model)) == ((1, 0), (1, 1))


def test_who_comes_second_counts_nothing(wire):
    """A worker whose answer was lost says it again; one that was late finds it expired."""
    first, second = held(wire, "a", "b")
    item = counted(wire, first, rows=1, device_us=100)
    assert wire.finish("w1", item) == [Finished.ANSWERED]
    before = stats(wire)
    assert wire.finish("w1", item) == [Finished.NOT_MINE]
    assert stats(wire) == before
    wire.finish("", wire.end("b", b"expired")._replace(status="deadline_exceeded"))
    assert wire.finish("w1", counted(wire, second)) == [Finished.CLOSED]
    found = stats(wire)
    assert (found.ok, found.fleet, found.total) == (1, 1, 2), "it was with its worker for too long"


def test_what_was_cancelled_meanwhile_is_nobodys_fault(wire):
    (work,) = held(wire, "a")
    deployment = wire.run(fleet.deployment(wire.keys))
    envelopes = bare_envelopes("m", [(TENANT, "a")])
    end_requests(wire.executor, wire.keys, deployment, envelopes, CANCELLED)
    assert wire.finish("w1", counted(wire, work)) == [Finished.CLOSED]
    assert stats(wire).total == 0


def test_what_nobody_serves_is_counted_for_its_version(wire):
    wire.open("a")
    deployment = wire.run(fleet.deployment(wire.keys))
    envelopes = bare_envelopes("m", [(TENANT, "a"), (TENANT, "never")])
    error = ErrorBody(ErrorKind.NO_WORKER, "nobody")
    for _ in range(2):
        end_requests(wire.executor, wire.keys, deployment, envelopes, error, "1")
    assert stats(wire) == VersionStats(fleet=1)


def test_of_a_call_only_what_it_answers_is_counted(wire):
    """Each item stands alone: some are over, some are another worker's."""
    wire.open("taken")
    wire.join("w2")
    (taken,) = wire.take("w2")
    first, closed, late = held(wire, "a", "b", "c")
    wire.expire("b")
    wire.finish("", wire.end("c", b"expired")._replace(status="deadline_exceeded"))
    works = (first, closed, late, taken)
    items = [counted(wire, work, latency_ms=5, rows=2, device_us=10) for work in works]
    outcomes = wire.finish("w1", *items)
    assert outcomes == [
        Finished.ANSWERED, Finished.CLOSED, Finished.CLOSED, Finished.NOT_MINE
    ]  # fmt: skip
    found = stats(wire)
    assert (found.ok, sum(found.latency), found.rows, found.device_ms) == (1, 1, 2, 0.01)
    assert (found.fleet, found.total) == (1, 2), "one was with its worker for too long"


def test_what_waited_in_vain_is_counted_where_it_is_dropped(wire):
    """Its answer was written by a sweeper, who did not know where it lay."""
    for name, deadline in (("late", "1"), ("cancelled", "99999999999999")):
        fields = ("id", name, "tenant", TENANT, "deadline", deadline, "inputs", "x")
        wire.ask("XADD", wire.queue(), "*", *fields)
    wire.ask("XADD", wire.queue(), "*", "of", "others")
    wire.join()
    assert wire.take() == []
    assert stats(wire) == VersionStats(fleet=1)


def refused(wire, name, counter):
    item = wire.item(name, wire.enter(name), refusal=REFUSAL)
    return wire.accept(item._replace(counter=counter))[0]


def test_a_refusal_of_a_version_is_counted_and_others_are_not(wire):
    assert refused(wire, "a", "1:fleet") is Accepted.REFUSED
    assert refused(wire, "b", "") is Accepted.REFUSED
    assert refused(wire, "c", "1:caller") is Accepted.REFUSED
    wire.open("d")
    assert refused(wire, "d", "1:fleet") is Accepted.DUP
    assert stats(wire) == VersionStats(fleet=1, caller=1)


@pytest.mark.parametrize("spoil", ["foreign key", "foreign value"])
def test_stats_that_cannot_be_written_give_way_and_stop_nothing(wire, spoil):
    first, second = held(wire, "a", "b")
    wire.finish("w1", counted(wire, first))
    if spoil == "foreign key":
        wire.ask("DEL", wire.keys.stats)
        wire.ask("SET", wire.keys.stats, "foreign")
    else:
        wire.ask("HSET", wire.keys.stats, "1:ok", "x")
    assert wire.finish("w1", counted(wire, second)) == [Finished.ANSWERED]
    assert stats(wire).ok == 1
    assert len(wire.replies("b")) == 1


@pytest.mark.parametrize("value", [(1 << 63) - 1, -5, "1e3", "", "9" * 400])
def test_a_count_of_a_foreign_hand_stays_a_number(wire, value):
    first, second = held(wire, "a", "b")
    wire.ask("HSET", wire.keys.stats, "1:ok", value)
    for work in (first, second):
        assert wire.finish("w1", counted(wire, work)) == [Finished.ANSWERED]
    assert stats(wire).ok in (2, 9_000_000_000_000_001, 9_000_000_000_000_000)


def test_the_stats_of_a_version_that_is_gone_are_forgotten(wire):
    for number, work in enumerate(held(wire, "a", "b")):
        wire.finish("w1", counted(wire, work, f"{number + 1}", rows=1, device_us=1))
    assert wire.run(fleet.stats(wire.keys)).keys() == {"1", "2"}
    assert wire.run(fleet.forget_stats(wire.keys, ["2", "3"])) == 4
    assert wire.run(fleet.stats(wire.keys)).keys() == {"1"}
    wire.run(fleet.undeploy(wire.keys, [], forced=True))
    assert not wire.ask("EXISTS", wire.keys.stats)


def test_no_more_fields_are_written_than_are_read_and_forgotten(wire):
    (work,) = held(wire, "a")
    wire.finish("w1", counted(wire, work, rows=1, device_us=1))
    written = {name.decode() for name in wire.ask("HGETALL", wire.keys.stats)[::2]}
    assert written <= {*stats_fields("1")}
