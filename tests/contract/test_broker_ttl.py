"""`result_ttl_ms` holds however a request ends, on every kind of broker."""

import pytest
from support.broker_wire import ANSWER, TENANT, TTL_MS

from batchfleet.broker import membership, requests
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.wire.limits import OPEN_MS_MAX, RESULT_TTL_MS_MAX

HOUR_MS = 3_600_000
SLACK_MS = 5_000
ASKED = [30_000, HOUR_MS, RESULT_TTL_MS_MAX]
OPEN_FOR_MS = 20_000


def lives_as_asked(wire, request_id, asked_ms, until_deadline_ms=0):
    """Whether the reply and the memory of the id live as long as was asked for."""
    reply_ms, tombstone_ms = (
        wire.ask("PTTL", key) for key in (wire.reply_key(request_id), wire.tombstone(request_id))
    )
    most_ms = asked_ms + TTL_MS + until_deadline_ms  # see `Wire.end`
    return (
        asked_ms - SLACK_MS < reply_ms <= asked_ms
        and most_ms - SLACK_MS < tombstone_ms <= most_ms + 1000
    )


def remembered(wire):
    return wire.ask("HGETALL", wire.keys.ttl)


@pytest.mark.parametrize("asked_ms", ASKED)
def test_a_request_that_waits_ends_with_the_ttl_that_was_asked_for(wire, asked_ms):
    wire.open("a", result_ttl_ms=asked_ms, timeout_ms=OPEN_FOR_MS)
    wire.open("b", timeout_ms=OPEN_FOR_MS)
    assert remembered(wire) == [b"default:a", b"%d" % asked_ms]
    assert [wire.expire(name) for name in "ab"] == [Finished.ANSWERED] * 2
    assert lives_as_asked(wire, "a", asked_ms, OPEN_FOR_MS)
    assert lives_as_asked(wire, "b", TTL_MS, OPEN_FOR_MS)
    assert remembered(wire) == []


@pytest.mark.parametrize("asked_ms", ASKED)
def test_a_request_that_is_parked_ends_with_it(wire, asked_ms):
    wire.open("a", result_ttl_ms=asked_ms, delay_ms=HOUR_MS, timeout_ms=OPEN_FOR_MS)
    assert wire.expire("a") is Finished.ANSWERED
    assert lives_as_asked(wire, "a", asked_ms, HOUR_MS + OPEN_FOR_MS)
    assert remembered(wire) == []


def taken_by_another(wire):
    """A request that was delayed, failed, ran again, and whose worker was lost."""
    wire.open("a", result_ttl_ms=HOUR_MS, delay_ms=HOUR_MS, retries=2)
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED)]
    wire.join()
    (work,) = wire.take()
    assert wire.retry(work, delay_ms=0) is Retried.PARKED
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED)]
    (work,) = wire.take()
    wire.run(membership.leave(wire.keys, "w1"))
    wire.join("w2")
    (found,) = wire.run(requests.recover(wire.keys, "w2", wire.stamp(), "w1", work.stream, 10))
    assert (found.entry_id, work.result_ttl_ms) == (work.entry_id, HOUR_MS)
    return work


def test_what_befalls_a_request_meanwhile_changes_nothing(wire):
    work = taken_by_another(wire)
    assert wire.expire("a") is Finished.ANSWERED
    assert lives_as_asked(wire, "a", HOUR_MS, 2 * HOUR_MS - HOUR_MS + TTL_MS)
    end = wire.end("a", b"late", work.stream, work.entry_id)
    assert wire.finish("w2", end) == [Finished.CLOSED]
    assert wire.replies("a") != [b"late"]


@pytest.mark.parametrize("is_dead", [False, True])
def test_an_answer_forgets_what_was_asked(wire, is_dead):
    work = taken_by_another(wire)
    end = wire.end("a", ANSWER, work.stream, work.entry_id)._replace(
        result_ttl_ms=HOUR_MS, tombstone_ttl_ms=HOUR_MS + TTL_MS, is_dead=is_dead
    )
    assert wire.finish("w2", end) == [Finished.ANSWERED]
    assert lives_as_asked(wire, "a", HOUR_MS)
    assert remembered(wire) == []


def test_nothing_is_remembered_of_what_was_not_accepted(wire):
    entry_id = wire.enter("a")
    full = wire.accept(wire.item("a", entry_id, result_ttl_ms=HOUR_MS), backlog=0)
    late = wire.accept(wire.item("a", entry_id, result_ttl_ms=HOUR_MS, timeout_ms=0))
    wire.ask("DEL", wire.queue(64))
    stale = wire.accept(wire.item("a", entry_id, result_ttl_ms=HOUR_MS, bucket=64))
    assert [full, late, stale] == [[Accepted.BUSY], [Accepted.LATE], [Accepted.STALE]]
    assert remembered(wire) == []


def test_a_repeat_does_not_change_what_was_asked(wire):
    wire.open("a", result_ttl_ms=HOUR_MS)
    assert wire.send("a", result_ttl_ms=1000) is Accepted.DUP
    assert wire.send("a") is Accepted.DUP
    assert remembered(wire) == [b"default:a", b"%d" % HOUR_MS]


def test_the_same_id_of_two_tenants_is_two(wire):
    items = [wire.item("a", wire.enter("a"), result_ttl_ms=HOUR_MS)._replace(tenant="other")]
    items.append(wire.item("a", wire.enter("a")))
    assert wire.accept(*items) == [Accepted.OK] * 2
    assert wire.expire("a") is Finished.ANSWERED
    assert lives_as_asked(wire, "a", TTL_MS, 60_000)
    assert remembered(wire) == [b"other:a", b"%d" % HOUR_MS]


def test_what_was_asked_has_an_end_of_its_own(wire):
    wire.open("a", result_ttl_ms=HOUR_MS)
    assert wire.ask("PTTL", wire.keys.ttl) > OPEN_MS_MAX


def test_where_it_is_lost_the_default_holds(wire):
    wire.open("a", result_ttl_ms=HOUR_MS)
    wire.ask("DEL", wire.keys.ttl)
    assert wire.expire("a") is Finished.ANSWERED
    assert lives_as_asked(wire, "a", TTL_MS, 60_000)


def test_what_was_asked_for_requests_that_were_lost_goes_with_the_next(wire):
    wire.open("a", "b", result_ttl_ms=HOUR_MS)
    wire.ask("DEL", wire.keys.due)
    wire.open("c", result_ttl_ms=1000)
    assert remembered(wire) == [b"default:c", b"1000"]
    assert wire.ask("ZRANGE", wire.keys.due, 0, -1) == [f"{TENANT}:c".encode()]
