"""Taking requests back, and callers that go away."""

import asyncio

import pytest
from support.stub_fleet import reached

from batchfleet.broker import requests
from batchfleet.wire.errors import FleetError
from batchfleet.wire.states import State

PATIENCE_S = 20.0


async def test_a_cancelled_request_ends_so_and_does_not_run(client, stub):
    stub.open.clear()
    handle = await client.submit("m", "a")
    assert await client.cancel(handle) is State.CANCELLED
    with pytest.raises(FleetError) as caught:
        await client.result(handle)
    assert caught.value.name == "cancelled"
    stub.open.set()
    await client.infer("m", "b")
    assert handle.id not in stub.runs


async def test_who_waits_for_it_is_told_at_once(client, stub):
    stub.open.clear()
    waiting = asyncio.create_task(client.infer("m", "a", id="mine"))
    await reached(client, ("m", "mine"), State.ACCEPTED)
    assert await client.cancel(("m", "mine")) is State.CANCELLED
    with pytest.raises(FleetError, match="cancelled"):
        await asyncio.wait_for(waiting, 2)


async def test_what_has_ended_stays_as_it_ended(client, stub):
    handle = await client.submit("m", "a")
    result = await client.result(handle)
    assert await client.cancel(handle) is State.OK
    assert result.id == handle.id


async def test_cancelling_an_unknown_id_has_no_later_effect(client, stub):
    assert await client.cancel(("m", "later")) is State.UNKNOWN
    result = await client.infer("m", "a", id="later")
    assert result.id == "later"


async def test_a_caller_that_goes_away_takes_its_request_along(client, stub, keys):
    stub.open.clear()
    tasks = [asyncio.create_task(client.infer("m", str(at))) for at in range(20)]
    async with asyncio.timeout(PATIENCE_S):
        while client.waiting < len(tasks):
            await client.status(("m", "nobody"))
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks[::2])
    await reached_open(client, keys, len(tasks) // 2)
    stub.open.set()
    answers = await asyncio.gather(*tasks[1::2])
    assert len(answers) == len(stub.runs) == 10
    assert client.waiting == 0


async def test_a_request_with_an_id_of_its_own_outlives_its_caller(client, stub):
    stub.open.clear()
    task = asyncio.create_task(client.infer("m", "a", id="shared"))
    await reached(client, ("m", "shared"), State.ACCEPTED)
    task.cancel()
    await asyncio.wait([task])
    stub.open.set()
    assert (await client.result(("m", "shared"))).id == "shared"


async def reached_open(client, keys, count):
    """Wait until so many requests are open, which is the truth of the server."""
    async with asyncio.timeout(PATIENCE_S):
        while await client._executor.run(requests.open_requests(keys)) != count:
            pass
