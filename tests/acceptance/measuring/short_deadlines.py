"""Requests with a short deadline while every worker is busy for long."""

import asyncio
from time import perf_counter

from batchfleet.producer.async_client import AsyncClient
from batchfleet.wire.errors import RequestError
from tests.support.fleet import draft_of, until

from .mortal_server import mortal_server, served_fleet
from .pause import pause
from .promise import at_least, at_most, equals

MODEL = "short"
_BUSY_MS = 5_000
_DEADLINE_MS, _BOUND_MS = 200, 400
_PACE_S = 0.02
_WORKERS = 2
# Of a round.
_LEAST = 100
_DEADLINE_EXCEEDED = "deadline_exceeded"


def short_deadlines(*, quick):
    """One request every 20 ms for as long as all are busy, again and again."""
    rounds = 1 if quick else 4
    waits_ms, names = [], []
    draft = draft_of("echo", MODEL)
    with mortal_server() as server, served_fleet(server, draft, workers=_WORKERS) as fleet:
        for _ in range(rounds):
            over = perf_counter() + (_BUSY_MS - _BOUND_MS) / 1000
            blockers = _occupy(fleet)
            asyncio.run(_ask_until(fleet, over, waits_ms, names))
            assert not any(fleet.items(MODEL, one) for one in blockers), "a worker was free"
            fleet.replies(MODEL, blockers)
            fleet.wait_idle(MODEL)
    return [
        at_least("requests with a short deadline", len(waits_ms), _LEAST),
        at_most(
            f"… deadline {_DEADLINE_MS} ms, {_WORKERS} workers busy for {_BUSY_MS} ms: "
            "slowest answer, ms",
            max(waits_ms),
            _BOUND_MS,
        ),
        equals("… later than that", sum(wait_ms > _BOUND_MS for wait_ms in waits_ms), 0),
        equals("… answered deadline_exceeded", names.count(_DEADLINE_EXCEEDED), len(waits_ms)),
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


async def _ask_until(fleet, over, waits_ms, names):
    """Ask at a steady pace, whatever becomes of the requests before."""
    async with AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default") as client:

        async def ask():
            began = perf_counter()
            try:
                result = await client.infer(MODEL, "hello", timeout_ms=_DEADLINE_MS)
                names.append(result.version)
            except RequestError as error:
                names.append(error.name)
            waits_ms.append((perf_counter() - began) * 1000)

        async with asyncio.TaskGroup() as group:
            next_at = perf_counter()
            while next_at < over:
                group.create_task(ask())
                next_at += _PACE_S
                await pause(next_at - perf_counter())
