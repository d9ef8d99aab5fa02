"""Faults that users of other queues reported: of workers that die, freeze, stop or are busy.

`docs/decisions/0009-reported-faults.md` says which test stands for which report.
"""

import signal

import pytest
from support.fleet import check_all_ok, draft_of, limits, running_fleet, until

MODEL = "m"
LEASE_MS, BEAT_MS = 600, 200
FAST = {"lease_ms": LEASE_MS, "beat_ms": BEAT_MS, "recover_ms": BEAT_MS}


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    with running_fleet(redis_server, namespace, tmp_path, **FAST) as found:
        yield found


def held_by(fleet, worker):
    """Entries that a worker has taken and not settled, as (stream, how often handed out)."""
    name = worker.facts["worker"]
    return [
        (stream, entry["times_delivered"])
        for stream in fleet.queues(MODEL)
        for entry in fleet.server.xpending_range(stream, "worker", "-", "+", 1000, name)
    ]


def holder_of(fleet, workers):
    return until(
        lambda: next((one for one in workers if held_by(fleet, one)), None), "a worker holds it"
    )


def test_the_only_worker_is_killed_and_one_under_another_name_answers(fleet):
    (first,) = fleet.bring_up(draft_of("echo", MODEL, limits=limits(max_batch_size=4)))
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:100"}] * 8)
    until(lambda: len(held_by(fleet, first)) >= 4, "it holds a batch")
    first.kill()
    second = fleet.consumer()
    assert second.facts["worker"] != first.facts["worker"]
    check_all_ok(fleet.replies(MODEL, ids))
    assert {len(fleet.items(MODEL, name)) for name in ids} == {1}


def test_a_model_with_a_long_limit_delays_no_recovery_of_another(fleet):
    """Its worker is gone by its beat; no time limit of a model says when."""
    slow = draft_of("echo", "slow", limits=limits(predict_ms=300_000))
    fleet.deploy(slow)
    fleet.bring_up(draft_of("echo", MODEL, limits=limits(predict_ms=1_000)), workers=2)
    fleet.wait_served("slow", workers=2)
    victim = fleet.submit(MODEL, "!sleep:500")
    workers = [one for one in fleet.programs if one.kind == "consumer"]
    holder_of(fleet, workers).kill()
    check_all_ok([fleet.reply(MODEL, victim, timeout_s=5)])


def test_what_a_worker_without_grace_held_is_answered_at_once(fleet):
    """Told to stop in the middle of a batch: its peer does not wait for the lease."""
    lease_ms = 30_000
    first, second = fleet.bring_up(
        draft_of("echo", MODEL), workers=2, lease_ms=lease_ms, beat_ms=BEAT_MS, grace_ms=1
    )
    ids = [fleet.submit(MODEL, "!sleep:400@predict") for _ in range(2)]
    stopped = holder_of(fleet, [first, second])
    stopped.stop(timeout_s=5)
    ids += fleet.submit_all(MODEL, [{}] * 3)
    check_all_ok(fleet.replies(MODEL, ids, timeout_s=5))


def test_an_idle_worker_stops_at_once(fleet):
    """Nothing has to arrive for it to notice."""
    (worker,) = fleet.bring_up(draft_of("echo", MODEL))
    assert fleet.ask(MODEL).status == "ok"
    assert worker.stop(timeout_s=2) == 0
    assert fleet.pending(MODEL) == 0


def test_a_worker_that_stops_takes_nothing_more(fleet):
    """It finishes the batch that runs and the one behind it; the rest waits for others."""
    (worker,) = fleet.bring_up(draft_of("echo", MODEL, limits=limits(max_batch_size=4)))
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:100"}] * 8 + [{}] * 96)
    until(lambda: held_by(fleet, worker), "a batch runs")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert fleet.pending(MODEL) == 0
    assert fleet.waiting(MODEL) >= 104 - 3 * 8
    fleet.consumer()
    check_all_ok(fleet.replies(MODEL, ids))
