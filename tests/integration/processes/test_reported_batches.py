"""Faults that users of other servers reported: of batches, neighbours, and callers that give up.

`docs/decisions/0009-reported-faults.md` says which test stands for which report. One fleet of two
workers serves them all, and lives through each.
"""

import psutil
import pytest
from support.fleet import (
    check_all_ok,
    data_of,
    digests,
    draft_of,
    limits,
    shared_fleet,
    until,
    worker_of,
)

LEASE_MS, BEAT_MS = 600, 200
MODEL = "echo"


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    fast = {"lease_ms": LEASE_MS, "beat_ms": BEAT_MS, "recover_ms": BEAT_MS}
    draft = draft_of("echo", MODEL, limits=limits(max_batch_size=8))
    with shared_fleet(redis_server, folder, draft, workers=2, **fast) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_is_left(fleet):
    """After each test: no entry of any stream is pending, and no worker was taken for dead."""
    yield
    fleet.wait_idle(MODEL)
    assert fleet.pending(MODEL) == 0
    ingress = fleet.keys(MODEL).ingress("default")
    assert fleet.server.xpending(ingress, "router")["pending"] == 0
    for worker in fleet.workers:
        for event in ("worker.buried", "worker.took_over", "worker.fenced"):
            assert not worker.events(event)


def held_by(fleet, worker):
    """How often each entry was handed out that a worker has taken and not settled."""
    name = worker.facts["worker"]
    return [
        entry["times_delivered"]
        for stream in fleet.queues(MODEL)
        for entry in fleet.server.xpending_range(stream, "worker", "-", "+", 1000, name)
    ]


def beats_of(fleet, worker):
    return fleet.server.zscore(fleet.keys(MODEL).workers, worker.facts["worker"])


@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_a_model_that_holds_the_interpreter_for_three_leases_runs_once(fleet, stage):
    """A peer looks on; what waits in the busy worker is covered as well."""
    ids = [fleet.submit(MODEL, f"!hold_gil:{3 * LEASE_MS + 400}@{stage}")]
    busy = until(lambda: next((w for w in fleet.workers if held_by(fleet, w)), None), "it is taken")
    wanted = beats_of(fleet, busy) + 3 * LEASE_MS // BEAT_MS
    ids += fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(8)])
    until(lambda: beats_of(fleet, busy) >= wanted, "three leases of beats")
    assert set(held_by(fleet, busy)) == {1}
    assert not fleet.items(MODEL, ids[0])
    replies = fleet.replies(MODEL, ids)
    check_all_ok(replies)
    assert {reply.receipt["attempt"] for reply in replies} == {1}
    assert worker_of(replies[0]) == busy.facts["worker"]


def test_readers_that_the_server_unblocks_with_an_error_go_on(fleet):
    """As a server does to blocked readers whose stream moves, or when it is demoted."""
    names = {program.facts["worker"] for program in fleet.workers}
    for _ in range(3):
        blocked = [one for one in fleet.server.client_list() if "b" in one["flags"]]
        for client in blocked:
            fleet.server.client_unblock(client["id"], error=True)
        assert blocked
        check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20), timeout_s=5))
    assert set(fleet.lanes(MODEL)) == names


@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_every_error_of_a_model_ends_the_entry(fleet, stage):
    ids = fleet.submit_all(MODEL, [{"text": f"!raise@{stage}"} for _ in range(20)])
    replies = fleet.replies(MODEL, ids)
    assert {reply.error["name"] for reply in replies} == {"model_error"}
    fleet.wait_idle(MODEL)
    assert [len(fleet.items(MODEL, name)) for name in ids] == [1] * len(ids)
    assert fleet.ask(MODEL, timeout_s=1).status == "ok"


@pytest.mark.parametrize("count", [1, 7, 64])
def test_a_failing_batch_answers_each_of_its_requests(fleet, count):
    """Nobody waits, and nobody is answered for another."""
    requests = [{"text": "!raise" if at % 2 else f"text {at}"} for at in range(count)]
    replies = fleet.replies(MODEL, fleet.submit_all(MODEL, requests, together=True))
    assert [reply.status for reply in replies] == [
        "error" if at % 2 else "ok" for at in range(count)
    ]
    good = [reply for reply in replies if reply.status == "ok"]
    assert [data_of(reply, "digest") for reply in good] == [
        digests([f"text {at}"]) for at in range(0, count, 2)
    ]


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_each_caller_gets_its_own_row_and_no_other(fleet, count):
    texts = [f"canary {count} {at}" for at in range(count)]
    ids = fleet.submit_all(MODEL, [{"text": text} for text in texts], together=True)
    replies = fleet.replies(MODEL, ids)
    assert [data_of(reply, "digest") for reply in replies] == [[one] for one in digests(texts)]
    assert [reply.id for reply in replies] == ids
    assert max(reply.receipt["rows"] for reply in replies) <= 8


def test_requests_of_one_two_and_five_rows_get_as_many_outputs(fleet):
    sizes = (1, 2, 5)
    rows = [[f"{size} {at}" for at in range(size)] for size in sizes]
    ids = fleet.submit_all(MODEL, [{"text": texts} for texts in rows], together=True)
    found = [data_of(reply, "digest") for reply in fleet.replies(MODEL, ids)]
    assert found == [digests(texts) for texts in rows]


def test_callers_that_give_up_leave_no_trace(fleet):
    """A wave of deadlines that cannot be kept, between two waves of patient callers."""

    def patient():
        ids = fleet.submit_all(MODEL, [{"text": "!sleep:2"}] * 60)
        replies = fleet.replies(MODEL, ids)
        check_all_ok(replies)
        return replies

    patient()
    hasty = [{"text": "!sleep:2", "timeout_ms": "20"}] * 300
    statuses = {reply.status for reply in fleet.replies(MODEL, fleet.submit_all(MODEL, hasty))}
    assert "deadline_exceeded" in statuses
    assert statuses <= {"ok", "deadline_exceeded"}
    assert {reply.receipt["attempt"] for reply in patient()} == {1}


def test_what_was_cancelled_while_it_waited_does_not_run(fleet):
    """Each would end its device process, if it ran."""
    blockers = []

    def both_busy():
        if fleet.pending(MODEL) == len(blockers):
            blockers.append(fleet.submit(MODEL, "!sleep:1200"))
        return all(held_by(fleet, worker) for worker in fleet.workers)

    until(both_busy, "both workers are busy")
    ids = fleet.submit_all(MODEL, [{"text": "!segv"}] * 12)
    cancels = [{"id": name, "text": None, "cancel": "1"} for name in ids]
    fleet.submit_all(MODEL, cancels)
    replies = fleet.replies(MODEL, ids)
    assert {reply.status for reply in replies} == {"cancelled"}
    check_all_ok(fleet.replies(MODEL, blockers))
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20)))
    assert not any(worker.events("device.lost") for worker in fleet.workers)
    assert {len(fleet.items(MODEL, name)) for name in ids} == {1}


def test_callers_that_take_back_half_of_their_requests_leave_no_trace(fleet):
    texts = [{"id": f"half-{at}", "text": "!sleep:1"} for at in range(400)]
    cancels = [{"id": one["id"], "text": None, "cancel": "1"} for one in texts[::2]]
    mixed = [one for pair in zip(texts[::2], texts[1::2], cancels, strict=True) for one in pair]
    fleet.submit_all(MODEL, mixed)
    replies = fleet.replies(MODEL, [one["id"] for one in texts])
    check_all_ok(replies[1::2])
    assert {reply.status for reply in replies[::2]} <= {"cancelled", "ok"}
    assert "cancelled" in {reply.status for reply in replies[::2]}
    fleet.wait_idle(MODEL)
    assert {len(fleet.items(MODEL, one["id"])) for one in texts} == {1}
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 100)))


def test_failures_do_not_grow_the_device_process(fleet):
    """Traces hold frames, and frames hold rows: none may be kept."""
    devices = [psutil.Process(worker.device_pid()) for worker in fleet.workers]

    def after(count):
        fleet.replies(MODEL, fleet.submit_all(MODEL, [{"text": "!raise " + "x" * 20_000}] * count))
        return sum(device.memory_info().rss for device in devices)

    before = after(200)
    grown = after(800) - before
    assert grown < 8 * 1024 * 1024, "the rows alone are 16 MB"
