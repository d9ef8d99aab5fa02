"""Routers that die, two at once, versions without a worker, and connections that are cut."""

import signal
from collections import Counter

import pytest
from support.fleet import draft_of, limits, until

from batchfleet.broker import ingress
from batchfleet.ops import deployment

MODEL = "m"


@pytest.fixture
def fleet(fleet):
    fleet.deploy(draft_of("echo", MODEL))
    return fleet


def check_all_answered_once(fleet, ids):
    replies = fleet.replies(MODEL, ids)
    assert Counter(reply.status for reply in replies) == {"ok": len(ids)}
    fleet.wait_idle(MODEL)
    assert {len(fleet.items(MODEL, name)) for name in ids} == {1}
    assert fleet.pending(MODEL) == 0
    assert fleet.server.xpending(fleet.keys(MODEL).ingress("default"), "router")["pending"] == 0


def test_two_routers_share_the_ingress_and_answer_once(fleet):
    fleet.start_all("router", "router", "consumer")
    stream = fleet.keys(MODEL).ingress("default")
    until(lambda: len(fleet.server.xinfo_consumers(stream, "router")) == 2, "both routers read")
    ids = []
    for chunk in range(20):
        entries = [{"id": f"r{chunk}-{at}"} for at in range(20)]
        ids += fleet.submit_all(MODEL, [entry for entry in entries for _ in range(2)])[::2]
    check_all_answered_once(fleet, ids)
    assert fleet.runs(MODEL) == len(ids)


@pytest.mark.slow
def test_what_a_killed_router_had_read_is_answered_by_the_next_one(fleet):
    (router,) = fleet.start_all("router")
    fleet.start_all("consumer")
    stream = fleet.keys(MODEL).ingress("default")
    ids = fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(300)])
    assert router.kill() == -signal.SIGKILL
    ids += fleet.submit_all(MODEL, [{"text": f"more {at}"} for at in range(20)])
    # Whatever the router was doing: some entries lie with a router that never comes back.
    fleet.executor.run(ingress.read([stream], "r-gone", 10, 0))
    fleet.start_all("router")
    check_all_answered_once(fleet, ids)
    assert fleet.runs(MODEL) == len(ids)


def test_a_router_that_stops_finishes_what_it_has_read(fleet):
    first, _, _ = fleet.start_all("router", "router", "consumer")
    ids = []
    for _ in range(10):
        ids += fleet.submit_all(MODEL, [{}] * 30)
    assert first.stop() == 0
    ids += fleet.submit_all(MODEL, [{}] * 30)
    check_all_answered_once(fleet, ids)


def test_a_version_that_nobody_serves_is_told_to_those_that_wait_and_to_new_ones(fleet):
    fleet.start_all("router", no_worker_ms=400)
    waiting = fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(150)])
    for reply in fleet.replies(MODEL, waiting):
        assert reply.error["name"] == "no_worker"
        assert reply.error["source"] == "fleet"
        assert reply.error["retryable"]
        assert reply.error["retry_after_ms"] > 0
    assert fleet.runs(MODEL) == len(waiting)
    assert fleet.ask(MODEL).error["name"] == "no_worker"
    assert fleet.runs(MODEL) == len(waiting)
    assert fleet.open_requests(MODEL) == 0
    fleet.start_all("consumer")
    until(lambda: fleet.ask(MODEL).status == "ok", "the worker is noticed")
    fleet.wait_idle(MODEL)
    assert {len(fleet.items(MODEL, name)) for name in waiting} == {1}


def test_requests_that_came_before_the_worker_wait_for_it(fleet):
    fleet.start_all("router")
    ids = fleet.submit_all(MODEL, [{}] * 30)
    until(lambda: fleet.waiting(MODEL) == 30, "all are accepted")
    fleet.start_all("consumer")
    check_all_answered_once(fleet, ids)


@pytest.mark.slow
def test_everything_is_answered_although_connections_are_cut(fleet):
    router, worker = fleet.start_all("router", "consumer")
    ids = []
    for _ in range(5):
        ids += fleet.submit_all(MODEL, [{"text": "!sleep:1"} for _ in range(60)])
        fleet.server.client_kill_filter(_type="normal", skipme=True)
        fleet.raw_reply(MODEL, ids[-1], timeout_s=3)
    check_all_answered_once(fleet, ids)
    assert worker.is_running()
    assert worker.events("server.lost")
    assert not worker.events("worker.fenced")
    # Ready is said once: a script that reads the line must not meet a second one.
    assert (router.stop(), router.rest) == (0, b"")
    assert (worker.stop(), worker.rest) == (0, b"")


@pytest.mark.slow
def test_one_ill_formed_deploy_record_stops_no_other_model(fleet):
    router, worker = fleet.start_all("router", "consumer")
    fleet.deploy(draft_of("echo", "broken"))
    fleet.wait_served("broken")
    fleet.server.hset(fleet.keys("broken").deploy, "version:1", "{")
    fleet.deploy(draft_of("echo", "later"))
    reply = fleet.ask("later", timeout_s=5)
    assert reply.status == "ok"
    assert fleet.ask(MODEL).status == "ok"
    assert router.is_running()
    assert worker.is_running()


def test_a_work_stream_that_is_gone_is_told_and_stops_nobody(fleet):
    # The router does not look at the fleet in between: it would recreate the stream.
    router = fleet.router(refresh_ms=10_000)
    fleet.consumer()
    fleet.server.delete(*fleet.queues(MODEL))
    assert fleet.ask(MODEL).error["name"] == "unavailable"
    fleet.deploy(draft_of("echo", MODEL))
    assert fleet.ask(MODEL).status == "ok"
    assert router.is_running()


def test_entries_with_wrong_clocks_are_answered(fleet):
    fleet.start_all("router", "consumer")
    stream = fleet.keys(MODEL).ingress("default")
    past = {"id": "past", "inputs": '{"text": ["x"]}', "timeout_ms": "1000"}
    fleet.server.xadd(stream, past, id="1-0")
    assert fleet.reply(MODEL, "past").status == "deadline_exceeded"
    seconds, _ = fleet.server.time()
    fleet.server.xadd(stream, {**past, "id": "ahead"}, id=f"{(seconds + 3600) * 1000}-0")
    reply = fleet.reply(MODEL, "ahead")
    assert reply.error["name"] == "bad_request"
    assert "clock" in reply.error["message"]


def test_buckets_that_are_changed_drain(fleet):
    """What waits in the old ones is served, and their streams are removed then."""
    fleet.start_all("router")
    values = limits(buckets=(16, 32), max_batch_size=1)
    fleet.deploy(draft_of("echo", "b", limits=values, bytes_per_token=4.0))
    fleet.wait_routed("b")
    old = fleet.submit_all("b", [{"text": "x" * size} for size in (10, 100)] * 20)
    until(lambda: fleet.waiting("b") == len(old), "they wait in the old buckets")
    fleet.operator_sets("b", buckets=[64])

    def placed_again():
        new = fleet.submit("b", "y" * 10)
        until(lambda: fleet.open_requests("b") and not fleet.ingress_length("b"), "accepted")
        old.append(new)
        return any(name.endswith(":64") and fleet.server.xlen(name) for name in fleet.queues("b"))

    until(placed_again, "new requests go to the new bucket")
    assert any(name.endswith(":32") for name in fleet.queues("b"))
    fleet.start_all("consumer")
    replies = fleet.replies("b", old)
    assert Counter(reply.status for reply in replies) == {"ok": len(old)}
    assert {reply.receipt["bucket"] for reply in replies} == {16, 32, 64}
    fleet.wait_idle("b")
    only_new = {f":{priority}:64" for priority in ("high", "normal", "low")}
    until(
        lambda: {name[name.index(":q:1") + 4 :] for name in fleet.queues("b")} == only_new,
        "the old streams are removed",
    )
    assert not fleet.server.hexists(fleet.keys("b").deploy, "draining:1")
    fleet.operator_sets("b", buckets=None)
    until(lambda: fleet.ask("b", "x" * 100).receipt["bucket"] == 32, "the old buckets are back")


HOUR_MS = 3_600_000


def test_a_reply_lives_as_its_caller_asked_however_the_request_ends(fleet):
    fleet.start_all("router")
    keys, asked = fleet.keys(MODEL), {"result_ttl_ms": str(HOUR_MS)}
    late = fleet.submit(MODEL, timeout_ms="300", **asked)
    delayed = fleet.submit(MODEL, delay_ms=str(HOUR_MS), **asked)
    until(lambda: fleet.server.zscore(keys.due, f"default:{delayed}"), "it is open")
    cancelled = {"id": delayed, "cancel": "1"}
    fleet.server.xadd(keys.ingress("default"), cancelled)
    replies = fleet.replies(MODEL, [late, delayed])
    assert [reply.status for reply in replies] == ["deadline_exceeded", "cancelled"]
    for name in (late, delayed):
        lives_ms = [fleet.server.pttl(key("default", name)) for key in (keys.reply, keys.tombstone)]
        assert HOUR_MS - 60_000 < lives_ms[0] <= HOUR_MS < lives_ms[1]
    assert not fleet.server.exists(keys.ttl)


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "frozen"])
def test_a_model_leaves_nothing_that_stays_whatever_became_of_its_worker(fleet, is_dead):
    (worker,) = fleet.start_all("consumer")
    fleet.start_all("router")
    fleet.wait_served(MODEL)
    assert fleet.ask(MODEL).status == "ok"
    worker.signal(signal.SIGKILL if is_dead else signal.SIGSTOP)
    keys = fleet.keys(MODEL)
    fleet.submit(MODEL, delay_ms=str(HOUR_MS), result_ttl_ms=str(HOUR_MS))
    waiting = fleet.submit(MODEL)
    until(lambda: fleet.server.zscore(keys.due, f"default:{waiting}"), "it is open")
    assert deployment.undeploy(fleet.operator, MODEL, forced=True) == 2
    assert lasting(fleet) == set()
    if not is_dead:
        beats = fleet.server.zscore(keys.workers, fleet.server.zrange(keys.workers, 0, 0)[0])
        worker.signal(signal.SIGCONT)
        until(lambda: not fleet.server.exists(keys.workers), f"it has gone, after {beats} beats")
        assert lasting(fleet) == set()


def lasting(fleet):
    """Keys of the model without an end."""
    found = fleet.server.scan_iter(f"{fleet.keys(MODEL).prefix}*", count=1000)
    return {key for key in found if fleet.server.pttl(key) == -1}
