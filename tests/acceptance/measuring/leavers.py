"""Callers that give up at random moments, and those that come after them."""

import asyncio
from random import Random
from time import perf_counter

from batchfleet.producer.async_client import AsyncClient
from tests.support.fleet import draft_of

from .mortal_server import mortal_server, served_fleet
from .pause import pause
from .promise import Promise, equals

MODEL = "left"
_REQUESTS = 1_000
_AFTERWARDS = 100
# Callers are away after up to so long; most requests take about as long.
_MOMENT_S = 1.5
_TEXT = "!sleep:10"
_PATIENCE_S = 30.0
_SETTLED_S = 2.0


def leavers(*, quick):
    """Half of a thousand callers are cancelled; a hundred come after."""
    chance = Random(5)
    with (
        mortal_server() as server,
        served_fleet(server, draft_of("echo", MODEL, limits={"max_batch_size": 8})) as fleet,
    ):
        found = asyncio.run(_leave(fleet, chance))
        fleet.wait_idle(MODEL, _PATIENCE_S)
        open_requests, pending = fleet.open_requests(MODEL), fleet.pending(MODEL)
    cut, stayed, afterwards, left_over = found
    return [
        Promise(
            promise=f"{_REQUESTS} callers, every second one told to give up within {_MOMENT_S} s: "
            "cancelled before their answer",
            bound=f"≥ {_REQUESTS // 4}",
            figure=cut,
            holds=cut >= _REQUESTS // 4,
        ),
        equals("… of those that stayed, answered", stayed, _REQUESTS // 2),
        equals(f"… of the next {_AFTERWARDS}, answered", afterwards, _AFTERWARDS),
        *(equals(f"… {what} then", count, 0) for what, count in left_over.items()),
        equals("… open requests and pending entries in the server", open_requests + pending, 0),
    ]


async def _leave(fleet, chance):
    async with AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default") as client:
        await client.infer(MODEL, "first")
        loop = asyncio.get_running_loop()
        callers = [asyncio.create_task(client.infer(MODEL, _TEXT)) for _ in range(_REQUESTS)]
        for caller in callers[::2]:
            loop.call_later(chance.uniform(0, _MOMENT_S), caller.cancel)
        ends = await asyncio.gather(*callers, return_exceptions=True)
        cut = sum(isinstance(end, asyncio.CancelledError) for end in ends[::2])
        stayed = sum(not isinstance(end, BaseException) for end in ends[1::2])
        after = [client.infer(MODEL, f"after {at}") for at in range(_AFTERWARDS)]
        answers = await asyncio.gather(*after, return_exceptions=True)
        answered = sum(not isinstance(answer, BaseException) for answer in answers)
        return cut, stayed, answered, await _left_over(client)


async def _left_over(client):
    """What the client keeps for callers, by name, once its last commands had time to be answered.

    It looks inside: nobody else can tell.
    """
    over = perf_counter() + _SETTLED_S
    while any((kept := _kept(client)).values()) and perf_counter() < over:
        await pause(0.02)
    return kept


def _kept(client):
    waiter, executor = client._waiter, client._executor
    return {
        "callers waiting": client.waiting,
        "ids in the table of waits": sum(len(one.entries) for one in waiter._channels.values()),
        "ids to be looked at": len(waiter._asked),
        "commands without an answer": len(executor._in_flight) + len(executor._outbox),
    }
