"""Clients, and what serves them: a fleet of one thread."""

import pytest
import redis
from support.stub_fleet import StubFleet, deploy_model

from batchfleet.producer.async_client import AsyncClient


@pytest.fixture
def server(redis_url):
    """A connection of the test's own to the server."""
    with redis.Redis.from_url(redis_url, socket_timeout=10, retry=None) as connection:
        yield connection


@pytest.fixture
def keys(redis_url, namespace):
    """A deployed model for clients."""
    return deploy_model(redis_url, namespace, "m")


@pytest.fixture
def stub(redis_url, keys):
    """What serves it: a fleet of one thread."""
    with StubFleet(redis_url, keys) as fleet:
        yield fleet


@pytest.fixture
async def client(redis_url, namespace):
    """A client of it."""
    async with AsyncClient(redis_url, namespace=namespace, tenant="default") as client:
        yield client
