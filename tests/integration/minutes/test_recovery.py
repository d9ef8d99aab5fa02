"""Workers that are gone, and peers that take over: real processes, killed, frozen and revived."""

import json
import signal
from collections import Counter

from support.fleet import check_all_ok, draft_of, limits, until

MODEL = "m"
LEASE_MS, BEAT_MS = 900, 300
FAST = {"lease_ms": LEASE_MS, "beat_ms": BEAT_MS, "recover_ms": BEAT_MS, "refresh_ms": 300}


def pending_of(fleet, worker):
    name = worker.facts["worker"].encode()
    found = [fleet.server.xpending(stream, "worker") for stream in fleet.queues(MODEL)]
    holders = [consumer for one in found for consumer in one["consumers"]]
    return sum(holder["pending"] for holder in holders if holder["name"] == name)


def inside_of(fleet, worker):
    """What a worker has told of its device process."""
    return fleet.server.hget(fleet.keys(MODEL).worker(worker.facts["worker"]), "inside")


def lost(fleet):
    return fleet.server.smembers(fleet.keys(MODEL).lost)


def test_what_a_killed_worker_held_is_answered_by_its_peer(fleet):
    first, second = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(max_batch_size=8)), workers=2, **FAST
    )
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:400"}] * 32)
    until(lambda: pending_of(fleet, first) >= 8, "the first worker holds a batch")
    until(lambda: inside_of(fleet, first), "peers can tell what runs in it")
    first.kill()
    replies = fleet.replies(MODEL, ids)
    check_all_ok(replies)
    attempts = Counter(reply.receipt["attempt"] for reply in replies)
    assert attempts[2] >= 1, "what ran inside the killed worker counts one attempt more"
    assert attempts[1] >= 1, "what did not run there keeps its count"
    assert set(attempts) == {1, 2}
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)
    until(lambda: not lost(fleet), "the dead one is forgotten")
    assert fleet.living(MODEL) == {second.facts["worker"]}
    names = {
        consumer["name"].decode()
        for stream in fleet.queues(MODEL)
        for consumer in fleet.server.xinfo_consumers(stream, "worker")
    }
    assert first.facts["worker"] not in names


def test_a_frozen_worker_that_comes_back_starts_over_and_answers_nothing_twice(fleet):
    first, second = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(max_batch_size=4)), workers=2, **FAST
    )
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:200"}] * 16)
    until(lambda: pending_of(fleet, first) >= 4, "the first worker holds a batch")
    first.signal(signal.SIGSTOP)
    check_all_ok(fleet.replies(MODEL, ids))
    until(lambda: fleet.living(MODEL) == {second.facts["worker"]}, "the frozen one is buried")
    first.signal(signal.SIGCONT)
    until(lambda: len(fleet.living(MODEL)) == 2, "it is back under another name")
    assert first.facts["worker"] not in fleet.living(MODEL)
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20)))


def test_what_a_stopped_worker_left_is_taken_over_at_once(fleet):
    """A worker that ends by itself goes to `lost`; nobody waits for a lease."""
    first, second = fleet.bring_up(draft_of("echo", MODEL), workers=2, **FAST)
    assert first.stop() == 0
    until(lambda: not lost(fleet), "nothing is left of it", timeout_s=3)
    assert fleet.living(MODEL) == {second.facts["worker"]}


def test_a_request_that_ends_every_worker_is_given_up(fleet):
    """It takes device process and worker along each time; after three times it is poison."""
    workers = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(max_attempts=2)), workers=3, **FAST
    )
    culprit = fleet.submit(MODEL, "!sleep:60000")
    for _ in range(2):
        until(lambda: any(w.is_running() and inside_of(fleet, w) for w in workers), "one has it")
        next(w for w in workers if w.is_running() and inside_of(fleet, w)).kill()
    reply = fleet.reply(MODEL, culprit)
    assert reply.error["name"] == "poison"
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 10)))


def test_a_stalled_server_buries_nobody(fleet):
    workers = fleet.bring_up(draft_of("echo", MODEL), workers=2, **FAST)
    names = fleet.living(MODEL)
    fleet.server.execute_command("CLIENT", "PAUSE", 3 * LEASE_MS, "ALL")
    ids = fleet.submit_all(MODEL, [{}] * 10)
    check_all_ok(fleet.replies(MODEL, ids))
    assert fleet.living(MODEL) == names
    assert not lost(fleet)
    assert not any(worker.events("worker.buried") for worker in workers)


def test_large_inputs_of_a_killed_worker_are_read_again_by_its_peer(fleet):
    first, _ = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(max_batch_size=4)), workers=2, **FAST
    )
    text = "!sleep:200 " + "x" * 100_000
    keys = fleet.keys(MODEL)
    # More than one worker has room for.
    ids = [f"large-{at}" for at in range(20)]
    for name in ids:
        fleet.server.set(keys.blob("default", name), json.dumps({"text": [text]}), px=80_000)
    fleet.submit_all(MODEL, [{"text": None, "id": name, "inputs_at": "blob"} for name in ids])
    until(lambda: pending_of(fleet, first) >= 1, "the first worker holds some")
    first.kill()
    check_all_ok(fleet.replies(MODEL, ids))
    assert not fleet.server.exists(*(keys.blob("default", name) for name in ids))
