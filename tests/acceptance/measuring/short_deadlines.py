"""Requests with a short deadline while every worker is busy for long."""

from time import perf_counter

from tests.support.fleet import draft_of, until

from .mortal_server import mortal_server, served_fleet
from .pause import pause_s
from .promise import at_least, at_most, equals
from .steady_load import LoadPlan, SteadyLoad

MODEL = "short"
_BUSY_MS = 5_000
_DEADLINE_MS, _BOUND_MS = 200, 400
_PLAN = LoadPlan(model=MODEL, rate_per_s=50.0, timeout_ms=_DEADLINE_MS)
_WORKERS = 2
# Of a round.
_LEAST = 100
_DEADLINE_EXCEEDED = "deadline_exceeded"


def short_deadlines(*, quick):
    """One request every 20 ms for as long as all are busy, again and again."""
    rounds = 1 if quick else 4
    sent = []
    draft = draft_of("echo", MODEL)
    with mortal_server() as server, served_fleet(server, draft, workers=_WORKERS) as fleet:
        for _ in range(rounds):
            over = perf_counter() + (_BUSY_MS - _BOUND_MS) / 1000
            blockers = _occupy(fleet)
            with SteadyLoad(fleet, _PLAN) as load:
                pause_s(over - perf_counter())
                load.stop()
            sent += load.requests
            assert not any(fleet.items(MODEL, one) for one in blockers), "a worker was free"
            fleet.replies(MODEL, blockers)
            fleet.wait_idle(MODEL)
    waits_ms = [(one.over_at - one.sent_at) * 1000 for one in sent]
    expired = sum(one.outcome == _DEADLINE_EXCEEDED for one in sent)
    return [
        at_least("requests with a short deadline", len(waits_ms), _LEAST),
        at_most(
            f"… deadline {_DEADLINE_MS} ms, {_WORKERS} workers busy for {_BUSY_MS} ms: "
            "slowest answer, ms",
            max(waits_ms),
            _BOUND_MS,
        ),
        equals("… later than that", sum(wait_ms > _BOUND_MS for wait_ms in waits_ms), 0),
        equals("… answered deadline_exceeded", expired, len(sent)),
    ]


def _occupy(fleet):
    """Make every worker busy. One that runs a request may take a second one in advance."""
    blockers = []
    while len(_holders(fleet)) < _WORKERS:
        assert len(blockers) < 2 * _WORKERS, "one worker takes all"
        blockers.append(fleet.submit(MODEL, f"!sleep:{_BUSY_MS}"))
        until(lambda: fleet.pending(MODEL) == len(blockers), "it is taken")
    return blockers


def _holders(fleet):
    found = [fleet.server.xpending(stream, "worker") for stream in fleet.queues(MODEL)]
    return {consumer["name"] for one in found for consumer in one["consumers"]}
