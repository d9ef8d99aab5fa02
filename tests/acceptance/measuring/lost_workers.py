"""A worker is killed or frozen with a batch on its device; its peer answers.

Both workers of a fleet at the default settings get the same: a first batch, whose receipts name the
worker and the size, and a second one behind it. The victim dies while the second runs: what is
inside its device process then fits one batch, so all of it is on the device.
"""

import signal
from collections import Counter
from dataclasses import dataclass
from random import Random
from time import perf_counter

from batchfleet.service.settings import SETTING_ROWS
from batchfleet.wire.reply import decode_reply
from tests.support.fleet import draft_of, until, worker_of

from .mortal_server import mortal_server, served_fleet
from .pause import pause_s
from .promise import at_least, at_most, equals

MODEL = "lost"
_LEASE_S = SETTING_ROWS["lease_ms"].default / 1000
_RUN_S = 2.0
_BOUND_S = 2 * _LEASE_S + _RUN_S
_BATCH_ROWS = 32
_BATCH_ROWS_LEAST = 8
# Two batches for each of two workers.
_WAVE = 4 * _BATCH_ROWS
_KILLS, _KILLS_QUICK = 30, 1
_FREEZES, _FREEZES_QUICK = 3, 1
_TRIES = 3
_READY_S = 60.0
# Less than the socket waits.
_PATIENCE_S = 30.0
# Past the time-out of the requests, at which the fleet owes an answer whatever has happened.
_WAVE_PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What became of one wave.

    Attributes:
        inside: requests that were on the victim's device.
        again: receipts that tell of a second attempt.
        slowest_s: from the fault to the last answer of the wave.
        runs: batches that what was inside ran in afterwards.
        right: requests that have exactly one terminal item, and it is an answer.
    """

    inside: int
    again: int
    slowest_s: float
    runs: int
    right: int


def killed_workers(*, quick):
    """Kill workers one after the other, at a random moment of a run; each is replaced."""
    kills = _KILLS_QUICK if quick else _KILLS
    chance, losses = Random(4), []
    with mortal_server() as server, served_fleet(server, _draft()) as fleet:
        while len(losses) < kills:
            ids, victim, inside = _run_into_second_batch(fleet)
            pause_s(chance.uniform(0, 0.6 * _RUN_S))
            victim.kill()
            losses.append(_loss(fleet, ids, inside, perf_counter()))
            fleet.start("consumer").wait_until_ready(_READY_S)
            fleet.wait_served(MODEL, workers=2)
    return [
        at_most(
            f"{kills} kills of a worker whose batch runs, {_RUN_S:g} s a run, lease {_LEASE_S:g} s:"
            f" slowest of {_WAVE} answers after the kill, s",
            max(loss.slowest_s for loss in losses),
            _BOUND_S,
        ),
        _all_of(losses, "kills after which all came in time", lambda x: x.slowest_s <= _BOUND_S),
        at_most("… batches that a lost batch ran in again", max(x.runs for x in losses), 1),
        at_least(
            "… smallest batch that a kill met: requests inside",
            min(loss.inside for loss in losses),
            _BATCH_ROWS_LEAST,
        ),
        _all_of(
            losses, "kills whose requests inside have attempt 2", lambda x: x.again == x.inside
        ),
        _all_of(losses, "kills with one answer to each request", lambda x: x.right == _WAVE),
    ]


def _all_of(losses, what, holds):
    return equals(f"… {what}", sum(map(holds, losses)), len(losses))


def frozen_workers(*, quick):
    """Freeze the main process of a worker, wait for its peer's answers, and let it go on."""
    freezes = _FREEZES_QUICK if quick else _FREEZES
    losses, renamed, same_process = [], 0, 0
    with mortal_server() as server, served_fleet(server, _draft()) as fleet:
        for _ in range(freezes):
            ids, victim, inside = _run_into_second_batch(fleet)
            before, known = fleet.living(MODEL), victim.events("worker.started")
            victim.signal(signal.SIGSTOP)
            stopped = perf_counter()
            fleet.replies(MODEL, ids, _PATIENCE_S)
            until(lambda b=before: len(b - fleet.living(MODEL)) == 1, "it is buried", _PATIENCE_S)
            buried = (before - fleet.living(MODEL)).pop()
            victim.signal(signal.SIGCONT)
            until(lambda: len(fleet.living(MODEL)) == 2, "it is back", _PATIENCE_S)
            fleet.wait_served(MODEL, workers=2)
            # By now the answer that was on its way has met the gate.
            losses.append(_loss(fleet, ids, inside, stopped))
            started = victim.events("worker.started")
            renamed += len(started) == len(known) + 1 and buried not in fleet.living(MODEL)
            same_process += victim.is_running()
    return [
        equals(
            f"{freezes} workers frozen and resumed: started over under a new name", renamed, freezes
        ),
        equals("… in the same process", same_process, freezes),
        _all_of(losses, "freezes with one answer to each request", lambda x: x.right == _WAVE),
    ]


def _draft():
    """Every run takes two seconds, however many rows it has: a larger batch is always better.

    Warm-up has time for one run only, so that the estimate for many rows is far too high and must
    not bound the batch.
    """
    limits = {"buckets": (16,), "max_length": 16, "max_batch_size": _BATCH_ROWS}
    return draft_of(
        "device_stub",
        MODEL,
        limits={**limits, "max_batch_ms": 100_000},
        parameters={"base_ms": _RUN_S * 1000, "per_token_ms": 0.0},
    )


def _run_into_second_batch(fleet):
    """Send a wave; returns its ids, a worker in its second batch, and how many are inside it."""
    workers = [one for one in fleet.programs if one.kind == "consumer" and one.is_running()]
    names = {worker.events("worker.started")[-1]["worker"]: worker for worker in workers}
    for _ in range(_TRIES):
        rows = [{"text": f"text {at:03}"} for at in range(_WAVE)]
        ids = fleet.submit_all(MODEL, rows, together=True)

        def found(ids=ids):
            replies = [decode_reply(raw) for raw in _raw_replies(fleet, ids) if raw]
            return _in_second_batch(fleet, names, replies) or len(replies) == _WAVE

        victim = until(found, "a second batch runs", _PATIENCE_S)
        if victim is not True:
            name, inside = victim
            return ids, names[name], inside
    raise AssertionError(f"{_TRIES} waves in which no worker got two batches")


def _in_second_batch(fleet, names, replies):
    """A worker whose first batch is answered while all that is inside it fits into one."""
    answered = Counter(worker_of(reply) for reply in replies)
    for name in names:
        inside = _inside(fleet, name)
        if answered[name] >= _BATCH_ROWS_LEAST and _BATCH_ROWS_LEAST <= inside <= _BATCH_ROWS:
            return name, inside
    return None


def _raw_replies(fleet, ids):
    keys = fleet.keys(MODEL)
    with fleet.server.pipeline(transaction=False) as pipe:
        for request_id in ids:
            pipe.lindex(keys.reply("default", request_id), 0)
        return pipe.execute()


def _inside(fleet, name):
    """Requests in a worker's device process, as it tells its peers."""
    told = fleet.server.hget(fleet.keys(MODEL).worker(name), "inside")
    return len((told or b"").split())


def _loss(fleet, ids, inside, since):
    """Wait for all answers of a wave, and look at them."""
    until(lambda: all(_raw_replies(fleet, ids)), "every request is answered", _WAVE_PATIENCE_S)
    slowest_s = perf_counter() - since
    replies = [decode_reply(raw) for raw in _raw_replies(fleet, ids)]
    again = [reply for reply in replies if reply.receipt.get("attempt") == 2]
    single = [len(fleet.items(MODEL, request_id)) == 1 for request_id in ids]
    return Loss(
        inside=inside,
        again=len(again),
        slowest_s=slowest_s,
        runs=len({reply.receipt["batch"] for reply in again}),
        right=sum(one and reply.status == "ok" for one, reply in zip(single, replies, strict=True)),
    )
