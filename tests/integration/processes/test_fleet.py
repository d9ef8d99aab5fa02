"""A router and two workers as real processes, under everything that callers and operators do."""

import json
from collections import Counter, defaultdict
from statistics import median

import pytest
from support.fleet import (
    check_all_ok,
    data_of,
    digests,
    draft_of,
    limits,
    shared_fleet,
    tokens_draft,
    until,
    worker_of,
)

from batchfleet.wire.deployment import LIMIT_ROWS
from batchfleet.wire.reply import decode_reply

# Keys of a fleet that live as long as it does; all others need a TTL or belong to open requests.
LASTING = ("deploy", "tenants", "workers", "lost", "journal", "stats", "in:", "q:", "bell:")


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    drafts = (draft_of("echo", "echo"), tokens_draft("texts", max_padding=1.15))
    with shared_fleet(redis_server, tmp_path_factory.mktemp("fleet"), *drafts, workers=2) as found:
        yield found


# Sharing and order.


def test_two_workers_share_the_load(fleet, model):
    fleet.serve(draft_of("echo", model, limits=limits(max_batch_size=2)), workers=2)
    ids = fleet.submit_all(model, [{"text": "!sleep:20"}] * 40)
    replies = fleet.replies(model, ids)
    check_all_ok(replies)
    shares = Counter(map(worker_of, replies))
    assert set(shares) == {worker.facts["worker"] for worker in fleet.workers}
    assert min(shares.values()) >= 10


def test_the_same_id_a_hundred_times_at_once_runs_once(fleet, model):
    fleet.serve(draft_of("echo", model), workers=2)
    ids = fleet.submit_all(model, [{"id": "same", "text": f"copy {at}"} for at in range(100)])
    first = fleet.raw_reply(model, ids[0])
    fleet.wait_idle(model)
    assert fleet.items(model, "same") == [first]
    assert fleet.runs(model) == 1
    reply = decode_reply(first)
    assert reply.receipt["rows"] == reply.usage["rows"] == 1
    assert reply.receipt["attempt"] == 1
    assert data_of(reply, "digest") == digests(["copy 0"])


def test_a_copy_sent_again_before_and_after_the_answer_joins(fleet, model):
    fleet.serve(draft_of("echo", model), workers=2)
    ids = [f"r{at}" for at in range(50)]
    fleet.submit_all(model, [{"id": name, "text": "!sleep:5"} for name in ids for _ in range(2)])
    before = [fleet.raw_reply(model, name) for name in ids]
    fleet.submit_all(model, [{"id": name} for name in ids])
    fleet.wait_idle(model)
    assert [fleet.items(model, name) for name in ids] == [[raw] for raw in before]
    assert fleet.runs(model) == len(ids)


def test_a_request_of_many_rows_comes_back_in_order_beside_others(fleet):
    texts = [f"{at} " + "x" * (at * 7 % 900) for at in range(300)]
    singles = [f"single {at} " + "y" * (at * 13 % 600) for at in range(100)]
    before = fleet.submit_all("texts", [{"text": text} for text in singles[:50]])
    many = fleet.submit("texts", texts)
    after = fleet.submit_all("texts", [{"text": text} for text in singles[50:]])
    reply = fleet.reply("texts", many)
    assert reply.status == "ok"
    assert data_of(reply, "digest") == digests(texts)
    assert data_of(reply, "length") == [len(text) // 4 + 1 for text in texts]
    assert reply.usage["rows"] == 300
    assert reply.receipt["padded_tokens"] / reply.receipt["tokens"] <= 1.3
    replies = fleet.replies("texts", before + after)
    assert [data_of(one, "digest") for one in replies] == [[d] for d in digests(singles)]


def test_rows_of_one_request_need_not_agree_with_what_was_claimed(fleet):
    texts = ["x" * 4 * at for at in range(1, 60)]
    reply = fleet.ask("texts", texts, rows="2", length="1")
    assert data_of(reply, "digest") == digests(texts)


def test_a_failing_row_is_named_and_hurts_nobody_else(fleet):
    neighbours = fleet.submit_all("echo", [{"text": f"good {at}"} for at in range(10)])
    bad = fleet.submit("echo", ["a", "!raise", "b", "!raise"])
    neighbours += fleet.submit_all("echo", [{"text": f"good {at}"} for at in range(10)])
    reply = fleet.reply("echo", bad)
    assert reply.error["name"] == "model_error"
    assert reply.error["source"] == "model"
    assert reply.error["rows"] == [1, 3]
    check_all_ok(fleet.replies("echo", neighbours))


@pytest.mark.parametrize("switch", ["wrong_count", "nan"])
def test_an_output_that_breaks_the_signature_is_a_bad_output(fleet, switch):
    neighbours = fleet.submit_all("echo", [{"text": f"good {at}"} for at in range(5)])
    assert fleet.ask("echo", f"!{switch}").error["name"] == "bad_output"
    check_all_ok(fleet.replies("echo", neighbours))


def test_a_high_priority_overtakes_what_waits(fleet, model):
    fleet.serve(draft_of("echo", model, limits=limits(max_batch_size=1)), workers=2)
    low = fleet.submit_all(model, [{"text": "!sleep:20", "priority": "low"}] * 40)
    high = fleet.submit_all(model, [{"text": "!sleep:20", "priority": "high"}] * 4)
    waited = [reply.receipt["queue_ms"] for reply in fleet.replies(model, low)]
    urgent = [reply.receipt["queue_ms"] for reply in fleet.replies(model, high)]
    assert max(urgent) < median(waited)


def test_a_high_priority_overtakes_what_a_worker_holds_already(fleet, model):
    """Different parameters: the held requests run one by one although a batch may have 32 rows."""
    fleet.serve(draft_of("echo", model), workers=2)
    low = fleet.submit_all(
        model,
        [
            {"parameters": json.dumps({"fault": "sleep:20", "n": at}), "priority": "low"}
            for at in range(60)
        ],
    )
    until(lambda: fleet.pending(model) + 4 >= len(low), "the workers hold the low ones")
    high = fleet.submit(model, "urgent", priority="high")
    waited = [reply.receipt["queue_ms"] for reply in fleet.replies(model, low)]
    assert fleet.reply(model, high).receipt["queue_ms"] < median(waited)


def test_requests_with_different_parameters_never_share_a_batch(fleet, model):
    fleet.serve(draft_of("echo", model), workers=2)
    blockers = fleet.submit_all(model, [{"text": "!sleep:150", "parameters": "{}"}] * 2)
    ids = fleet.submit_all(model, [{"parameters": json.dumps({"n": at % 3})} for at in range(45)])
    check_all_ok(fleet.replies(model, blockers))
    batches = defaultdict(set)
    sizes = Counter()
    for at, reply in enumerate(fleet.replies(model, ids)):
        batches[reply.receipt["batch"]].add(at % 3)
        sizes[reply.receipt["batch"]] += 1
        assert reply.receipt["rows"] <= 15
    assert all(len(parameters) == 1 for parameters in batches.values())
    assert len(batches) >= 3


# Bounds.


def test_a_full_backlog_is_busy_and_loses_nothing(fleet, model):
    fleet.deploy(draft_of("echo", model, limits=limits(max_batch_size=1)))
    fleet.operator_sets(model, backlog=10)
    fleet.wait_until_served(model, workers=2)
    requests = [{"id": f"r{at}", "text": "!sleep:150"} for at in range(15)]
    ids = fleet.submit_all(model, requests)
    replies = fleet.replies(model, ids)
    refused = [reply for reply in replies if reply.status != "ok"]
    check_all_ok(replies[:10])
    assert [reply.error["name"] for reply in refused] == ["busy"] * len(refused)
    assert 1 <= len(refused) <= 5
    for reply in refused:
        assert reply.error["retryable"]
        assert reply.error["retry_after_ms"] > 0
        assert not fleet.server.exists(fleet.keys(model).tombstone("default", reply.id))
    fleet.wait_idle(model)
    again = fleet.submit_all(model, [r for r in requests if r["id"] in {x.id for x in refused}])
    until(lambda: fleet.runs(model) == 15, "the refused ones are accepted now")
    fleet.wait_idle(model)
    check_all_ok(fleet.replies(model, again))
    assert [len(fleet.items(model, name)) for name in ids] == [1] * 15


def test_a_deadline_fires_while_every_worker_is_busy(fleet, model):
    fleet.serve(draft_of("echo", model, limits=limits(max_batch_size=1)), workers=2)
    busy = fleet.submit_all(model, [{"text": "!sleep:1500"}] * 2)
    until(lambda: fleet.pending(model) == 2, "both workers are busy")
    late = fleet.submit_all(model, [{"timeout_ms": "200"}] * 6)
    replies = fleet.replies(model, late, timeout_s=1)
    assert {reply.status for reply in replies} == {"deadline_exceeded"}
    assert {reply.error["name"] for reply in replies} == {"deadline_exceeded"}
    assert not any(fleet.items(model, name) for name in busy)
    check_all_ok(fleet.replies(model, busy))
    fleet.wait_idle(model)
    assert [len(fleet.items(model, name)) for name in late] == [1] * 6


def test_a_deadline_fires_for_the_request_that_runs(fleet, model):
    fleet.serve(draft_of("echo", model))
    late = fleet.submit(model, "!sleep:800", timeout_ms="150")
    first = fleet.raw_reply(model, late, timeout_s=0.6)
    assert decode_reply(first).status == "deadline_exceeded"
    fleet.wait_idle(model)
    assert fleet.items(model, late) == [first]
    assert fleet.ask(model).status == "ok"


def test_large_bodies_go_through(fleet):
    texts = [f"{at}" + "x" * 1_000_000 for at in range(6)]
    ids = fleet.submit_all("echo", [{"text": text} for text in texts])
    found = [data_of(reply, "digest") for reply in fleet.replies("echo", ids)]
    assert found == [[digest] for digest in digests(texts)]


def test_the_most_rows_that_are_allowed_come_back(fleet):
    texts = [f"row {at}" for at in range(LIMIT_ROWS["max_rows_per_request"].highest)]
    ids = [fleet.submit("echo", texts) for _ in range(3)]
    for reply in fleet.replies("echo", ids):
        assert data_of(reply, "digest") == digests(texts)


def test_what_the_caller_asked_for_comes_back(fleet):
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    reply = fleet.ask(
        "echo", outputs="length", meta="m: {}\n", traceparent=traceparent, result_ttl_ms="5000"
    )
    assert [output["name"] for output in reply.outputs] == ["length"]
    assert reply.meta == "m: {}\n"
    assert reply.trace_id == "a" * 32
    assert 0 < fleet.server.pttl(fleet.keys("echo").reply("default", reply.id)) <= 5000


def test_nothing_is_left_over(fleet):
    """Runs last in this module: whatever the tests above did, only what belongs there remains."""
    models = [name.decode() for name in fleet.server.smembers(f"{fleet.namespace}:models")]
    for model in models:
        fleet.wait_idle(model)
        assert fleet.pending(model) == 0
        group = fleet.server.xpending(fleet.keys(model).ingress("default"), "router")
        assert group["pending"] == 0
    lasting = {f"{fleet.namespace}:models"}
    for name in fleet.server.scan_iter(f"{fleet.namespace}:*", count=1000):
        kind = name.decode().partition("}:")[2]
        if fleet.server.ttl(name) == -1 and not kind.startswith(LASTING):
            assert name.decode() in lasting
