"""Where parked requests go once their time has come, on the twin of the server."""

from dataclasses import replace

import pytest
from support.broker_wire import BUCKETS, RECORD, TENANT, wired

from batchfleet.broker import fleet
from batchfleet.broker.ending import CANCELLED, bare_envelopes, end_requests
from batchfleet.broker.later import RipeItem
from batchfleet.broker.requests import Finished
from batchfleet.router.sweeping import (
    answer_abandoned,
    elsewhere,
    has_place,
    promote_ripe,
    sweep_overdue,
)
from batchfleet.router.view import ModelView
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Deployment, Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.limits import RESEND_WINDOW_MS
from batchfleet.wire.reply import decode_reply

KEYS = ModelKeys("n", "m")
SECOND = VersionRecord(version="2", limits=Limits(buckets=(32, 128)))
HOUR_MS = 3_600_000


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "n") as found:
        yield found


def view_of(wire):
    record = wire.run(fleet.deploy_hash(wire.keys))
    return ModelView(
        keys=wire.keys,
        record=record,
        deployment=Deployment.from_hash("m", record),
        tenants=(TENANT,),
        served=frozenset(),
    )


def deploy_second(wire):
    streams = fleet.queue_streams(wire.keys, SECOND)
    wire.run(fleet.deploy(wire.keys, SECOND, streams, "n2", [TENANT]))


def withdraw_first(wire):
    streams = fleet.queue_streams(wire.keys, RECORD)
    assert wire.run(fleet.withdraw(wire.keys, "1", streams)) == 0


def park(wire, request_id, **changes):
    wire.open(request_id, delay_ms=HOUR_MS, **changes)
    wire.be_ripe()


def tell_nobody(kind, count):
    """For tests in which nothing is dropped."""
    raise AssertionError(f"{count} of {kind} were dropped")


def ripe_item(version="", queue=None):
    place = KEYS.queue("1", "high", 16) if queue is None else queue
    return RipeItem(b"1-0", place, KEYS.bell("1"), "a", TENANT, version)


def deployment(*records, stable):
    return Deployment(model="m", stable=stable, versions={one.version: one for one in records})


def test_another_place_is_of_the_same_priority_and_the_next_bucket():
    found = elsewhere(ripe_item(), KEYS, deployment(SECOND, stable="2"))
    assert (found.queue, found.bell) == (KEYS.queue("2", "high", 32), KEYS.bell("2"))
    long = ripe_item(queue=KEYS.queue("1", "low", 512))
    assert elsewhere(long, KEYS, deployment(SECOND, stable="2")).queue == (
        KEYS.queue("2", "low", 128)
    )


def test_whoever_named_a_version_keeps_to_it():
    both = deployment(RECORD, SECOND, stable="2")
    assert elsewhere(ripe_item("1"), KEYS, both).queue == KEYS.queue("1", "high", 16)
    assert elsewhere(ripe_item("1"), KEYS, deployment(SECOND, stable="2")) is None


def test_a_place_is_one_of_a_version_that_is_deployed():
    assert has_place(ripe_item(), KEYS, deployment(RECORD, stable="1"))
    assert not has_place(ripe_item(), KEYS, deployment(SECOND, stable="2"))
    assert has_place(ripe_item(queue=""), KEYS, deployment(SECOND, stable="2")), "its body is lost"


def test_what_is_ripe_is_moved_and_counted(wire):
    for at in range(70):
        wire.open(f"r{at}", delay_ms=HOUR_MS, backlog=1000)
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 0
    wire.be_ripe()
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 70
    assert wire.parked() == (0, 0)


def test_a_request_moves_to_the_stable_version_where_its_own_was_withdrawn(wire):
    """The streams of the version that was withdrawn are there still."""
    park(wire, "a")
    deploy_second(wire)
    withdraw_first(wire)
    assert wire.ask("EXISTS", wire.queue())
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 1
    assert wire.ask("XLEN", wire.queue()) == 0
    assert wire.ask("XLEN", KEYS.queue("2", "normal", 32)) == 1
    assert wire.ask("LLEN", KEYS.bell("2")) == 1


def test_a_request_that_insists_on_a_version_that_is_gone_is_told(wire):
    park(wire, "a", version="1")
    deploy_second(wire)
    withdraw_first(wire)
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 0
    (reply,) = wire.replies("a")
    assert decode_reply(reply).error["name"] == "unknown_version"
    assert wire.parked() == (0, 0)


def test_a_request_whose_bucket_was_removed_goes_to_the_next(wire):
    park(wire, "a", bucket=BUCKETS[0])
    wire.ask("DEL", wire.queue(BUCKETS[0]))
    view = view_of(wire)
    smaller = VersionRecord(version="1", limits=Limits(buckets=BUCKETS[1:]))
    changed = ModelView(
        keys=view.keys,
        record=view.record,
        deployment=replace(deployment(smaller, stable="1"), epoch=1, nonce="n"),
        tenants=view.tenants,
        served=view.served,
    )
    assert promote_ripe(wire.executor, changed, tell_nobody) == 1
    assert wire.ask("XLEN", wire.queue(BUCKETS[1])) == 1


def test_what_has_no_place_at_all_waits_for_the_next_sweep(wire):
    for at in range(70):
        park(wire, f"r{at}", backlog=1000)
    for bucket in BUCKETS:
        wire.ask("DEL", wire.queue(bucket))
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 0
    assert wire.parked() == (70, 70)


def test_each_request_that_is_ended_has_its_outcome(wire):
    wire.open("open", "over")
    wire.expire("over")
    assert cancel(wire, "over", "open", "no") == [
        Finished.CLOSED,
        Finished.ANSWERED,
        Finished.CLOSED,
    ]


@pytest.mark.parametrize(
    "fields",
    [
        ("written", "by hand"),
        ("queue", "nowhere", "bell", b"\xff"),
        ("queue", "n:{m}:q:1:normal:many", "bell", "n:{m}:bell:1"),
        ("queue", "n:{m}:q:1:normal:" + "9" * 5000, "bell", "n:{m}:bell:1"),
        ("queue", "n:{m}:q:1:urgent:16", "bell", "n:{m}:bell:1"),
        ("queue", "n:{m}:due", "bell", "n:{m}:bell:1", "id", "a", "tenant", TENANT),
        ("queue", "n:{m}:q:1:normal:16", "bell", "n:{other}:bell:1", "id", "a"),
    ],
)
def test_what_others_have_parked_is_dropped_and_told(wire, fields):
    told = []
    park(wire, "a")
    parked_id = wire.ask("XADD", wire.keys.parked, "*", *fields)
    wire.ask("ZADD", wire.keys.later, 0, parked_id)
    assert promote_ripe(wire.executor, view_of(wire), lambda *what: told.append(what)) == 1
    assert told == [("parked_by_others", 1)]
    assert wire.parked() == (0, 0)
    assert wire.replies("a") == [], "a request that it names is not its to end"
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]


def test_a_name_that_is_no_entry_id_stops_no_promotion(wire):
    park(wire, "a")
    wire.ask("ZADD", wire.keys.later, 0, "nonsense")
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 1
    assert wire.parked() == (0, 0)


# How long a reply is kept.


def sweep(wire):
    wire.ask("ZADD", wire.keys.due, "XX", 1, f"{TENANT}:a")
    return sweep_overdue(wire.executor, view_of(wire), tell_nobody)


def abandon(wire):
    return answer_abandoned(wire.executor, view_of(wire), "1")


def cancel(wire, *request_ids):
    envelopes = bare_envelopes("m", [(TENANT, request_id) for request_id in request_ids])
    record = view_of(wire).deployment
    return end_requests(wire.executor, wire.keys, record, envelopes, CANCELLED)


def cancel_a(wire):
    return cancel(wire, "a").count(Finished.ANSWERED)


@pytest.mark.parametrize("end", [sweep, abandon, cancel_a])
@pytest.mark.parametrize("asked_ms", [1000, 12 * HOUR_MS])
def test_a_reply_that_a_router_writes_lives_as_its_caller_asked(wire, end, asked_ms):
    wire.open("a", result_ttl_ms=asked_ms)
    assert end(wire) == 1
    assert asked_ms - 900 < wire.ask("PTTL", wire.reply_key("a")) <= asked_ms
    tombstone_ms = wire.ask("PTTL", wire.tombstone("a"))
    assert tombstone_ms > asked_ms + RESEND_WINDOW_MS - 900


def test_a_request_that_cannot_be_placed_any_more_keeps_its_ttl(wire):
    park(wire, "a", version="1", result_ttl_ms=12 * HOUR_MS)
    deploy_second(wire)
    withdraw_first(wire)
    assert promote_ripe(wire.executor, view_of(wire), tell_nobody) == 0
    assert wire.ask("PTTL", wire.reply_key("a")) > 11 * HOUR_MS


def test_a_changed_default_holds_for_what_is_open(wire):
    wire.open("a")
    wire.open("b", result_ttl_ms=HOUR_MS)
    wire.run(fleet.configure(wire.keys, {"set:result_ttl_ms": b"7200000"}, [], "n2"))
    cancel(wire, "a", "b")
    lives_ms = [wire.ask("PTTL", wire.reply_key(name)) for name in "ab"]
    assert [round(ms / HOUR_MS) for ms in lives_ms] == [2, 1]


def test_a_version_that_nobody_serves_is_left_without_entries(wire):
    """Some named it, one was with a worker that is gone, one was answered before."""
    wire.open("held", "a", "answered")
    wire.open("b", version="1")
    wire.join()
    assert [work.id for work in wire.take(room=1)] == ["held"]
    wire.expire("answered")
    wire.ask("XADD", wire.queue(), "*", "of", "others")
    assert answer_abandoned(wire.executor, view_of(wire), "1") == 3
    assert {decode_reply(wire.replies(name)[0]).error["name"] for name in ("held", "a", "b")} == {
        "no_worker"
    }
    deploy_second(wire)
    withdraw_first(wire)
    assert wire.run(fleet.stats(wire.keys))["1"].fleet == 3


# What somebody else has put among the open requests.


def test_what_is_no_open_request_is_dropped_and_stops_no_sweep(wire):
    told = []
    for at in range(200):
        wire.ask("ZADD", wire.keys.due, at - 500, f"foreign{at}")
    for member in (b"\xff\xfe:a", b":", b"a:", b"default:", b"default:a:b", b"default:..", b""):
        wire.ask("ZADD", wire.keys.due, "-inf", member)
    wire.open("a", "b", backlog=1000)
    wire.ask("ZADD", wire.keys.due, "XX", 1, f"{TENANT}:a")
    assert sweep_overdue(wire.executor, view_of(wire), lambda *what: told.append(what)) == 1
    assert {kind for kind, _ in told} == {"opened_by_others"}
    assert sum(count for _, count in told) == 207
    assert wire.ask("ZRANGE", wire.keys.due, 0, -1) == [f"{TENANT}:b".encode()]


@pytest.mark.parametrize(
    "fields",
    [("id", "a"), ("written", "by", "a", "hand"), ("id", b"\xff", "tenant", TENANT), ("id", "")],
)
def test_entries_that_others_wrote_stop_no_answer_to_the_abandoned(wire, fields):
    wire.ask("XADD", wire.queue(), "*", *fields)
    wire.open("a")
    assert answer_abandoned(wire.executor, view_of(wire), "1") == 1
    assert len(wire.replies("a")) == 1
