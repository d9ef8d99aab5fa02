"""A client whose connections the server closes while it has nothing to say."""

import pytest

from batchfleet.producer.async_client import AsyncClient
from batchfleet.wire.states import State


@pytest.fixture
async def client(redis_url, namespace):
    async with AsyncClient(redis_url, namespace=namespace, tenant="default", keep=True) as client:
        yield client


def cut(server):
    """Close the client's connections while its loop does not look."""
    for entry in server.client_list():
        if entry["name"].startswith("batchfleet-client"):
            server.client_kill_filter(_id=entry["id"])


async def test_connections_that_were_cut_while_idle_are_no_errors(client, stub, server):
    handle = await client.submit("m", "x", id="mine")
    assert (await client.result(handle)).text == "x"
    cut(server)
    assert await client.status(handle) is State.OK
    cut(server)
    assert await client.poll(("m", "never-seen")) is None
    cut(server)
    assert (await client.infer("m", "y")).text == "y"
    cut(server)
    handle = await client.submit("m", "z")
    cut(server)
    assert (await client.result(handle)).text == "z"
    cut(server)
    assert await client.cancel(("m", "mine")) is State.OK
