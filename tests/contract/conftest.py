"""Brokers for the tests of the broker: what the contract promises, it promises on each of them."""

import secrets
from contextlib import contextmanager

import pytest
from support.broker_wire import cluster_node, wired
from support.server import delete_namespace, private_server

from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer

SERVERS = ("session", "redis7", "cluster")


@contextmanager
def _server_url(kind, redis_server, make_folder):
    if kind == "session":
        yield redis_server.url
    elif kind == "redis7":
        with private_server(kind) as server:
            yield server.url
    else:
        with cluster_node(make_folder(kind)) as url:
            yield url


@pytest.fixture(scope="module", params=SERVERS)
def server_url(request, redis_server, tmp_path_factory):
    """A real server; on the cluster node a script that touches an undeclared key fails."""
    with _server_url(request.param, redis_server, tmp_path_factory.mktemp) as url:
        yield url


@pytest.fixture(scope="module", params=("memory", *SERVERS))
def broker(request, redis_server, tmp_path_factory):
    """The in-memory twin, or a real server."""
    if request.param == "memory":
        yield MemoryBroker(MemoryServer())
        return
    with _server_url(request.param, redis_server, tmp_path_factory.mktemp) as url:
        yield RedisBroker(url)


@pytest.fixture
def wire(broker):
    """A deployed model on each kind of broker."""
    name = f"t{secrets.token_hex(6)}"
    with wired(broker, name) as found:
        yield found
    if isinstance(broker, RedisBroker):
        delete_namespace(broker.url, name)


@pytest.fixture
def served_wire(server_url):
    """A deployed model on each kind of real server."""
    name = f"t{secrets.token_hex(6)}"
    with wired(RedisBroker(server_url), name) as found:
        yield found
    delete_namespace(server_url, name)
