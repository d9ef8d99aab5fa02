"""What conftest promises to every other test."""

import os

import redis
from support.server import delete_namespace


def client_of(url):
    return redis.Redis.from_url(url, socket_timeout=5.0, retry=None)


def test_server_answers_on_port_and_socket(redis_server):
    for url in (redis_server.url, redis_server.socket_url):
        with client_of(url) as client:
            assert client.ping()


def test_delete_namespace_removes_its_keys_and_no_others(redis_url, namespace):
    neighbour = f"{namespace}0"
    with client_of(redis_url) as client:
        for number in range(2500):
            client.set(f"{namespace}:{{m}}:{number}", "x")
        client.set(f"{neighbour}:{{m}}:1", "x")
        assert delete_namespace(redis_url, namespace) == 2500
        assert client.keys(f"{namespace}:*") == []
        assert client.get(f"{neighbour}:{{m}}:1") == b"x"
        assert delete_namespace(redis_url, neighbour) == 1


def test_environment_is_clean():
    ours = [name for name in os.environ if name.startswith("BATCHFLEET_")]
    assert [name for name in ours if not name.startswith("BATCHFLEET_TEST_")] == []
