"""Servers for the tests of scripts: whatever a script promises, it promises on each of them."""

import secrets

import pytest
from support.script_wire import cluster_node, redis7, wired
from support.server import delete_namespace

KINDS = ("session", "redis7", "cluster")


@pytest.fixture(scope="module", params=KINDS)
def server_url(request, redis_server, tmp_path_factory):
    if request.param == "session":
        yield redis_server.url
    elif request.param == "redis7":
        with redis7() as url:
            yield url
    else:
        with cluster_node(tmp_path_factory.mktemp("cluster")) as url:
            yield url


@pytest.fixture
def wire(server_url):
    namespace = f"t{secrets.token_hex(6)}"
    with wired(server_url, namespace) as found:
        yield found
    delete_namespace(server_url, namespace)
