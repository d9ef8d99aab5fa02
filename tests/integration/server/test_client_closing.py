"""A client that is closed at an awkward moment."""

import asyncio

import pytest

from batchfleet.producer.async_client import AsyncClient
from batchfleet.producer.errors import WaitTimeoutError

PATIENCE_S = 20.0


@pytest.mark.parametrize("patience_s", [0.0, 0.0005, 0.002, 0.01])
async def test_a_client_closed_while_it_connects_is_closed_soon(redis_url, keys, patience_s):
    """Cancelled while it connects, the library makes the connection all the same."""
    for _ in range(20):
        client = AsyncClient(redis_url, namespace=keys.namespace, tenant="default")
        handle = await client.submit("m", "x")
        with pytest.raises(WaitTimeoutError):
            await client.result(handle, timeout_s=patience_s)
        async with asyncio.timeout(PATIENCE_S):
            await client.close()


async def test_a_listener_that_swallows_cancellations_is_ended_all_the_same(client):
    swallowed = 0

    async def stubborn():
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    client._waiter._listening = client._waiter._start(stubborn())
    await asyncio.wait([client._waiter._listening], timeout=0)
    async with asyncio.timeout(PATIENCE_S):
        await client.close()
    assert swallowed == 3
