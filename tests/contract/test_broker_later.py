"""Delayed requests and retries on every kind of broker: parked with their bodies, moved in time."""

import pytest
from support.broker_wire import ANSWER, EXPIRED, INPUTS, TENANT

from batchfleet.broker import fleet, later, requests
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.wire import limits
from batchfleet.wire.deployment import Deployment, Limits, VersionRecord
from batchfleet.wire.work import parse_work

HOUR_MS = 3_600_000


def parked_entries(wire):
    return wire.ask("XRANGE", wire.keys.parked, "-", "+")


# Delays.


def test_a_delayed_request_is_parked_and_open(wire):
    before = wire.now_ms()
    wire.open("a", delay_ms=HOUR_MS, timeout_ms=5_000)
    ((parked_id, _),) = parked_entries(wire)
    (moved_at,) = (
        float(part) for part in wire.ask("ZRANGE", wire.keys.later, 0, 0, "WITHSCORES")[1:]
    )
    assert before + HOUR_MS <= moved_at <= wire.now_ms() + HOUR_MS
    assert wire.ask("ZRANGE", wire.keys.later, 0, -1) == [parked_id]
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) == moved_at + 5_000
    wire.join()
    assert wire.take() == []
    assert not wire.ask("EXISTS", wire.bell), "nobody is woken for nothing"
    assert wire.ingress_left() == (0, 0)


def test_a_delayed_request_is_moved_when_it_is_ripe_and_not_before(wire):
    wire.open("a", delay_ms=HOUR_MS)
    assert wire.promote() == []
    assert wire.parked() == (1, 1)
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED)]
    assert wire.parked() == (0, 0)
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"]
    wire.join()
    (work,) = wire.take()
    assert (work.id, work.inputs, work.attempt) == ("a", INPUTS, 1)
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.replies("a") == [ANSWER]


def test_parked_requests_are_moved_in_the_order_of_their_times(wire):
    for name, delay_ms in (("late", 3), ("early", 1), ("middle", 2)):
        wire.open(name, delay_ms=delay_ms * HOUR_MS)
    for at, parked_id in enumerate(wire.ask("ZRANGE", wire.keys.later, 0, -1)):
        wire.ask("ZADD", wire.keys.later, "XX", at + 1, parked_id)
    assert [name for name, _ in wire.promote(count=2)] == ["early", "middle"]
    assert [name for name, _ in wire.promote(count=2)] == ["late"]
    wire.join()
    assert [work.id for work in wire.take()] == ["early", "middle", "late"]


def test_a_delay_that_is_over_before_accept_goes_straight_to_the_queue(wire):
    entry = wire.enter("a", entry_id=f"{wire.now_ms() - 10_000}-0")
    item = wire.item("a", entry, delay_ms=5_000, timeout_ms=60_000)
    assert wire.accept(item) == [Accepted.OK]
    assert wire.parked() == (0, 0)
    wire.join()
    (work,) = wire.take()
    assert work.deadline_ms == int(entry.partition(b"-")[0]) + 65_000


def test_large_inputs_of_a_delayed_request_are_copied_inside_the_server(wire):
    large = b"x" * (limits.COPY_IN_SERVER_BYTES + 1)
    wire.open("a", delay_ms=HOUR_MS, inputs=large)
    wire.be_ripe()
    wire.promote()
    wire.join()
    assert [work.inputs for work in wire.take()] == [large]


def test_a_copy_of_a_delayed_request_joins_it(wire):
    wire.open("a", delay_ms=HOUR_MS)
    assert wire.send("a", delay_ms=HOUR_MS) is Accepted.DUP
    assert wire.send("a") is Accepted.DUP
    assert wire.parked() == (1, 1)


def test_parked_requests_are_moved_though_the_backlog_is_full(wire):
    wire.open("a", delay_ms=HOUR_MS, backlog=2)
    wire.open("b", backlog=2)
    assert wire.send("c", backlog=2) is Accepted.BUSY
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED)]


def test_a_request_that_was_closed_while_parked_ends_when_its_time_comes(wire):
    wire.open("a", "b", delay_ms=HOUR_MS)
    assert wire.expire("a") is Finished.ANSWERED
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.CLOSED), ("b", Promoted.MOVED)]
    assert wire.parked() == (0, 0)
    wire.join()
    assert [work.id for work in wire.take()] == ["b"]
    assert wire.replies("a") == [EXPIRED]


def test_a_tombstone_of_a_parked_request_outlives_its_delay(wire):
    """A copy of its entry would be accepted until the deadline, which lies behind the delay."""
    wire.open("a", delay_ms=HOUR_MS)
    wire.expire("a")
    assert wire.ask("PTTL", wire.tombstone("a")) > HOUR_MS


def test_two_routers_move_a_request_once(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.be_ripe()
    seen = wire.run(later.ripe(wire.keys, 10))
    assert wire.run(later.promote(wire.keys, wire.stamp(), seen)) == [Promoted.MOVED]
    assert wire.run(later.promote(wire.keys, wire.stamp(), seen)) == [Promoted.GONE]
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]


def test_a_body_that_others_took_blocks_nobody(wire):
    wire.open("a", "b", delay_ms=HOUR_MS)
    wire.ask("XDEL", wire.keys.parked, parked_entries(wire)[0][0])
    wire.be_ripe()
    assert wire.promote() == [("", Promoted.GONE), ("b", Promoted.MOVED)]
    assert wire.parked() == (0, 0)


def test_a_request_whose_queue_is_gone_stays_parked_until_it_is_placed_again(wire):
    wire.open("a", bucket=32, delay_ms=HOUR_MS)
    wire.ask("DEL", wire.queue(32))
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.STALE)]
    assert not wire.ask("EXISTS", wire.queue(32))
    assert wire.parked() == (1, 1)
    (item,) = wire.run(later.ripe(wire.keys, 10))
    other = item._replace(queue=wire.queue(64))
    assert wire.run(later.promote(wire.keys, wire.stamp(), [other])) == [Promoted.MOVED]
    wire.join()
    assert [(work.id, work.stream) for work in wire.take()] == [("a", wire.queue(64))]


@pytest.mark.parametrize("version", [None, "1"])
def test_what_is_ripe_tells_which_version_its_caller_named(wire, version):
    wire.open("a", version=version, delay_ms=HOUR_MS)
    wire.be_ripe()
    (item,) = wire.run(later.ripe(wire.keys, 10))
    place = (item.queue, item.bell, item.request_id, item.tenant, item.version)
    assert place == (wire.queue(), wire.bell, "a", TENANT, version or "")


def test_closed_requests_do_not_pile_up_while_they_are_parked(wire):
    """Open requests are bounded by the backlog; the bodies of those that were cancelled must be."""
    backlog = 4
    for at in range(10 * backlog):
        if wire.send(f"r{at}", backlog=backlog, delay_ms=HOUR_MS) is Accepted.OK:
            wire.expire(f"r{at}")
    assert wire.ask("XLEN", wire.keys.parked) <= 2 * backlog


# Retries.


def held(wire, request_id="a", **changes):
    wire.open(request_id, **changes)
    wire.join()
    (work,) = wire.take()
    return work


def test_a_retry_is_parked_and_runs_again_with_its_counts_and_deadline(wire):
    work = held(wire, retries=2)
    assert (work.attempt, work.retries) == (1, 2)
    assert wire.retry(work) is Retried.PARKED
    assert wire.pending(work.stream) == 0
    assert wire.ask("XLEN", work.stream) == 0
    assert wire.parked() == (1, 1)
    assert wire.promote() == []
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.MOVED)]
    (again,) = wire.take()
    assert (again.attempt, again.retries) == (2, 1)
    assert again.deadline_ms == work.deadline_ms
    assert (again.id, again.tenant, again.inputs) == (work.id, work.tenant, work.inputs)
    assert wire.retry(again) is Retried.PARKED
    wire.be_ripe()
    wire.promote()
    (last,) = wire.take()
    assert (last.attempt, last.retries) == (3, 0)
    assert wire.settle(last) is Finished.ANSWERED


def test_a_retry_waits_as_long_as_was_said(wire):
    work = held(wire, retries=1)
    before = wire.now_ms()
    wire.retry(work, delay_ms=5_000)
    (score,) = wire.ask("ZRANGE", wire.keys.later, 0, 0, "WITHSCORES")[1:]
    assert before + 5_000 <= float(score) <= wire.now_ms() + 5_000


def test_id_and_tenant_of_a_retry_come_first(wire):
    """The scripts read them by place; counts and the rest follow."""
    wire.retry(held(wire, retries=1, rows=3))
    ((_, flat),) = parked_entries(wire)
    assert flat[0:8:2] == [b"queue", b"bell", b"id", b"tenant"]
    names = flat[::2]
    assert len(names) == len(set(names))
    wire.be_ripe()
    wire.promote()
    ((_, queued),) = wire.ask("XRANGE", wire.queue(), "-", "+")
    assert queued[0:4] == [b"id", b"a", b"tenant", TENANT.encode()]
    assert parse_work(wire.queue(), b"1-0", queued).rows == 3


def test_only_the_holder_of_an_entry_retries_it(wire):
    work = held(wire, retries=1)
    assert wire.retry(work, worker="w2") is Retried.NOT_MINE
    assert wire.parked() == (0, 0)
    assert wire.pending(work.stream) == 1
    assert wire.retry(work) is Retried.PARKED
    assert wire.retry(work) is Retried.NOT_MINE, "an answer was lost and it is asked again"
    assert wire.parked() == (1, 1)


def test_a_request_that_is_over_is_not_retried_and_its_entry_ends(wire):
    work = held(wire, retries=1)
    wire.expire("a")
    assert wire.retry(work) is Retried.CLOSED
    assert wire.parked() == (0, 0)
    assert wire.pending(work.stream) == 0
    assert wire.ask("XLEN", work.stream) == 0


def test_a_retry_from_a_removed_stream_is_nobodys(wire):
    work = held(wire, retries=1)
    wire.ask("DEL", work.stream)
    assert wire.retry(work) is Retried.NOT_MINE


def test_a_retried_request_expires_while_it_is_parked(wire):
    wire.retry(held(wire, retries=1))
    assert wire.expire("a") is Finished.ANSWERED
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.CLOSED)]
    assert wire.take() == []


def test_the_model_of_a_parked_request_may_have_another_record(wire):
    """A second version is deployed and the first withdrawn while a request is parked for it."""
    wire.open("a", delay_ms=HOUR_MS)
    second = VersionRecord(version="2", limits=Limits(buckets=(0,)))
    streams = fleet.queue_streams(wire.keys, second)
    wire.run(fleet.deploy(wire.keys, second, streams, "n2", [TENANT]))
    for bucket in (16, 32, 64):
        for priority in ("high", "normal", "low"):
            wire.ask("DEL", wire.queue(bucket, priority))
    wire.be_ripe()
    assert wire.promote() == [("a", Promoted.STALE)]
    assert Deployment.from_hash("m", wire.run(fleet.deploy_hash(wire.keys))).stable == "2"
