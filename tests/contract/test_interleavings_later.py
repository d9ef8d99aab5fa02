"""Interleavings of what waits for later, of dead letters, and of what a server lost.

As in `test_interleavings.py`: one a test, on every kind of broker.
"""

import pytest
from support.broker_wire import ANSWER, BUCKETS, EXPIRED, INPUTS, RECORD, TENANT, TTL_MS

from batchfleet.broker import dead, fleet, ingress, later, membership, requests
from batchfleet.broker.errors import RefusedError
from batchfleet.broker.fleet import MARKED, RESTORED
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.requests import Finished
from batchfleet.wire.request import Request

HOUR_MS = 3_600_000


def park(wire, work, delay_ms=0, worker="w1"):
    return wire.run(later.retry(wire.keys, worker, work, wire.bell, delay_ms))


def ripe(wire):
    return wire.run(later.ripe(wire.keys, 10))


def promote(wire, items):
    return wire.run(later.promote(wire.keys, wire.stamp(), items))


def parked(wire):
    """Entries that are parked, and those that have a time."""
    return wire.ask("XLEN", wire.keys.parked), wire.ask("ZCARD", wire.keys.later)


@pytest.fixture
def failed(wire):
    """A request that failed on its worker, and is parked for a retry."""
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    assert park(wire, work) is Retried.PARKED
    return work


def give_up(wire, work, reply=b"poison"):
    end = wire.end(work.id, reply, work.stream, work.entry_id)._replace(is_dead=True)
    return wire.finish("w1", end)[0]


# Retries and delays.


def test_a_parked_request_is_moved_once_whoever_moves_it(wire, failed):
    items = ripe(wire)
    assert promote(wire, items) == [Promoted.MOVED]
    assert promote(wire, items) == [Promoted.GONE]
    (again,) = wire.take("w1")
    assert (again.id, again.inputs, again.attempt) == ("a", INPUTS, 2)
    assert again.deadline_ms == failed.deadline_ms
    assert wire.settle(again) is Finished.ANSWERED
    assert parked(wire) == (0, 0)
    assert (wire.ask("XLEN", wire.queue()), wire.replies("a")) == (0, [ANSWER])


def test_who_parked_a_request_answers_it_no_more(wire, failed):
    assert wire.settle(failed, b"late") is Finished.NOT_MINE
    assert park(wire, failed) is Retried.NOT_MINE
    assert parked(wire) == (1, 1)
    assert wire.replies("a") == []


def test_a_worker_that_lost_an_entry_does_not_park_it(wire):
    """It was frozen; its peer runs the request, which must not lie in two places."""
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    wire.join("w2")
    counter = wire.run(membership.beat_counters(wire.keys))["w1"]
    assert wire.run(membership.bury(wire.keys, "w1", counter))
    wire.run(requests.recover(wire.keys, "w2", wire.stamp(), "w1", wire.queue(), 10))
    assert park(wire, work) is Retried.NOT_MINE
    assert parked(wire) == (0, 0)
    assert wire.settle(work, worker="w2") is Finished.ANSWERED


def test_a_parked_request_that_expires_runs_no_more(wire, failed):
    assert wire.expire("a") is Finished.ANSWERED
    assert promote(wire, ripe(wire)) == [Promoted.CLOSED]
    assert wire.take("w1") == []
    assert parked(wire) == (0, 0)
    assert wire.replies("a") == [EXPIRED]


def test_what_expired_while_it_ran_is_not_parked(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    wire.expire("a")
    assert park(wire, work) is Retried.CLOSED
    assert parked(wire) == (0, 0)
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)


def test_a_retry_is_not_moved_before_its_time(wire):
    """Nor does it overtake what has come meanwhile."""
    wire.open("a", "b")
    first, second = wire.take(wire.join("w1"))
    park(wire, first, HOUR_MS)
    park(wire, second)
    wire.open("c")
    assert [item.request_id for item in ripe(wire)] == ["b"]
    promote(wire, ripe(wire))
    assert [work.id for work in wire.take("w1")] == ["c", "b"]
    assert parked(wire) == (1, 1)


def test_a_parked_request_whose_version_is_gone_stays_until_it_has_a_place(wire, failed):
    (item,) = ripe(wire)
    wire.ask("DEL", wire.queue())
    assert promote(wire, [item]) == [Promoted.STALE]
    assert not wire.ask("EXISTS", wire.queue())
    assert parked(wire) == (1, 1)
    assert promote(wire, [item._replace(queue=wire.queue(32))]) == [Promoted.MOVED]
    assert [work.id for work in wire.take("w1")] == ["a"]


def test_a_foreign_key_holds_up_no_other_promotion(wire):
    wire.open("a", bucket=16)
    wire.open("b", bucket=32)
    for work in wire.take(wire.join("w1")):
        park(wire, work)
    wire.ask("DEL", wire.queue(16))
    wire.ask("SET", wire.queue(16), "foreign", "PX", TTL_MS)
    items = ripe(wire)
    assert [item.request_id for item in items] == ["a", "b"]
    assert promote(wire, items) == [Promoted.STALE, Promoted.MOVED]


# Dead letters.


def test_a_dead_letter_is_there_once_its_error_is(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    assert give_up(wire, work) is Finished.ANSWERED
    assert give_up(wire, work) is Finished.NOT_MINE
    assert wire.replies("a") == [b"poison"]
    assert wire.run(dead.count_letters(wire.keys)) == 1
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)


def test_a_letter_that_cannot_be_written_ends_nothing(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    wire.ask("SET", wire.keys.dead, "foreign", "PX", TTL_MS)
    assert give_up(wire, work) is Finished.KEPT
    assert (wire.replies("a"), wire.pending(wire.queue())) == ([], 1)
    wire.ask("DEL", wire.keys.dead)
    assert give_up(wire, work) is Finished.ANSWERED
    assert wire.run(dead.count_letters(wire.keys)) == 1


def test_who_expires_first_leaves_no_letter(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    wire.expire("a")
    assert give_up(wire, work) is Finished.CLOSED
    assert wire.run(dead.count_letters(wire.keys)) == 0


def test_a_letter_is_replayed_once_and_under_another_id(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    give_up(wire, work)
    ((letter, _),) = wire.ask("XRANGE", wire.keys.dead, "-", "+")
    fields = Request(id="a.r1", inputs=INPUTS).to_fields()
    again = dead.replay(wire.keys, TENANT, letter, fields)
    assert wire.run(again) not in (0, None)
    assert wire.run(again) == 0
    assert wire.ask("XLEN", wire.ingress) == 1
    assert wire.replies("a") == [b"poison"]


def test_a_letter_stays_where_its_model_has_no_such_tenant(wire):
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    give_up(wire, work)
    ((letter, _),) = wire.ask("XRANGE", wire.keys.dead, "-", "+")
    fields = Request(id="a.r1", inputs=INPUTS).to_fields()
    assert wire.run(dead.replay(wire.keys, "nobody", letter, fields)) is None
    assert wire.run(dead.count_letters(wire.keys)) == 1


# What a server lost.


def mend(wire, known, nonce="fresh"):
    streams = fleet.queue_streams(wire.keys, RECORD)
    return wire.run(fleet.mend(wire.keys, known, [TENANT], streams, nonce))


def test_streams_that_were_lost_are_recreated_with_all_that_came_since(wire):
    known = wire.run(fleet.deploy_hash(wire.keys))
    wire.ask("DEL", wire.ingress, wire.queue())
    early = wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", INPUTS)
    assert mend(wire, known) == 2
    assert mend(wire, known) == 0
    ((_, entries),) = wire.run(ingress.read([wire.ingress], "router-1", 10, 0))
    assert [entry for entry, _ in entries] == [early]
    wire.open("b")
    assert [work.id for work in wire.take(wire.join("w1"))] == ["b"]


def test_a_server_that_came_back_empty_is_mended_once(wire):
    known = wire.run(fleet.deploy_hash(wire.keys))
    queues = [wire.queue(edge, level) for edge in BUCKETS for level in ("high", "normal", "low")]
    wire.ask("DEL", wire.keys.deploy, wire.keys.tenants, wire.ingress, *queues)
    assert mend(wire, known) == RESTORED
    assert mend(wire, known) == 0, "the record has another epoch now"
    assert wire.run(fleet.deploy_hash(wire.keys))["stable"] == known["stable"]
    wire.open("a")
    assert [work.id for work in wire.take(wire.join("w1"))] == ["a"]


def test_what_an_operator_took_out_of_service_is_not_mended(wire):
    known = wire.run(fleet.deploy_hash(wire.keys))
    others = [*fleet.queue_streams(wire.keys, RECORD), wire.ingress]
    assert wire.run(fleet.undeploy(wire.keys, others, forced=True))[0]
    assert mend(wire, known) == MARKED
    assert not wire.ask("EXISTS", wire.keys.deploy, wire.ingress)


def test_a_foreign_key_holds_up_no_other_mending(wire):
    known = wire.run(fleet.deploy_hash(wire.keys))
    wire.ask("DEL", wire.queue(16, "high"), wire.queue(64))
    wire.ask("SET", wire.queue(16, "high"), "foreign", "PX", TTL_MS)
    with pytest.raises(RefusedError):
        mend(wire, known)
    wire.open("a", bucket=64)
    assert [work.id for work in wire.take(wire.join("w1"))] == ["a"]
