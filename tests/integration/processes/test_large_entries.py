"""X3, T7: an entry that is far over the limit costs the router nothing, and nobody else either."""

import secrets
from pathlib import Path
from resource import RLIMIT_AS, prlimit

import pytest
import redis
from support.fleet import draft_of, running_fleet, until
from support.server import KINDS, private_server

from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.listing import heads

MODEL = "m"
MB = 1024 * 1024
# What a router may need beyond what it needs anyway; an entry of the tests is 300 MB.
ROOM_BYTES = 250 * MB
# As if it had been handed out a minute ago.
CLAIMED = ("IDLE", 60_000, "FORCE", "JUSTID")
ENTRIES = {
    "one field": lambda: {"inputs": bytes(300 * MB)},
    "many large fields": lambda: {f"f{at}": bytes(5 * MB) for at in range(60)},
    "many small fields": lambda: {b"%07d" % at: b"x" * 40 for at in range(800_000)},
    "a large name": lambda: {bytes(50 * MB): "x", "inputs": "{}"},
    "a little too large": lambda: {"inputs": bytes(20 * MB)},
}


@pytest.fixture
def fleet(namespace, tmp_path):
    with private_server() as server, running_fleet(server, namespace, tmp_path) as found:
        found.server.config_set("proto-max-bulk-len", 512 * MB)
        yield found


def confined(program):
    """A program that gets no more than `ROOM_BYTES` beside what it has."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    size = next(int(line.split()[1]) for line in status.splitlines() if "VmSize" in line) * 1024
    prlimit(program.pid, RLIMIT_AS, (size + ROOM_BYTES, size + ROOM_BYTES))
    return program


def enter(fleet, fields, **head):
    stream = fleet.keys(MODEL).ingress("default")
    assert fleet.server.xadd(stream, {**head, **fields}, nomkstream=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_over_the_limit_is_answered_and_nobody_dies(fleet, kind):
    """X3: read by a router that waits, beside requests of others."""
    fleet.deploy(draft_of("echo", MODEL))
    fleet.consumer()
    fleet.wait_served(MODEL)
    router = confined(fleet.router())
    fleet.wait_routed(MODEL)
    assert fleet.ask(MODEL).status == "ok"
    request_id = secrets.token_hex(8)
    enter(fleet, ENTRIES[kind](), id=request_id)
    reply = fleet.reply(MODEL, request_id)
    assert reply.error["name"] == "too_large"
    assert "bytes" in reply.error["message"]
    assert fleet.ask(MODEL).status == "ok"
    fleet.wait_idle(MODEL)
    assert router.is_running()


@pytest.mark.slow
def test_what_a_dead_router_left_does_not_end_the_next(fleet):
    """X3: the entry is taken over by its id, and never by its body."""
    fleet.deploy(draft_of("echo", MODEL))
    fleet.consumer()
    fleet.wait_served(MODEL)
    stream, request_id = fleet.keys(MODEL).ingress("default"), secrets.token_hex(8)
    enter(fleet, ENTRIES["one field"](), id=request_id)
    fleet.server.xgroup_createconsumer(stream, "router", "r-gone")
    (entry_id,) = (found for found, _ in fleet.executor.run(heads(stream, "-", 1)))
    fleet.server.xgroup_setid(stream, "router", entry_id)
    fleet.executor.run(plain(as_is, "XCLAIM", stream, "router", "r-gone", 0, entry_id, *CLAIMED))
    router = confined(fleet.router())
    assert fleet.reply(MODEL, request_id).error["name"] == "too_large"
    assert fleet.ask(MODEL).status == "ok"
    assert router.is_running()


@pytest.mark.slow
def test_one_that_nobody_can_be_answered_for_is_dropped_and_told(fleet):
    """X3: without an id, or with two."""
    fleet.deploy(draft_of("echo", MODEL))
    router = confined(fleet.router())
    fleet.wait_routed(MODEL)
    enter(fleet, ENTRIES["one field"]())
    enter(fleet, ENTRIES["a little too large"](), cancel="1", id="a")
    until(lambda: not fleet.ingress_length(MODEL), "they are dropped")
    (told,) = until(lambda: router.events("router.entry_dropped"), "it is told")
    assert told["kind"] == "too_large"


def test_a_server_of_ours_takes_no_value_over_the_limit(redis_server, namespace):
    """X3: `proto-max-bulk-len` is set where the server is ours."""
    if redis_server.pid is None:
        pytest.skip("the server is the user's own")
    with (
        redis.Redis.from_url(redis_server.socket_url, socket_timeout=30, retry=None) as client,
        pytest.raises(redis.RedisError),
    ):
        client.xadd(f"{namespace}:x", {"inputs": bytes(70 * MB)})


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_on_the_memory_of_clients_keeps_an_entry_of_many_values_out(kind):
    """X3, T7: the recommended setting works as documented; smaller here, as is the entry."""
    with (
        private_server(kind) as server,
        redis.Redis.from_url(server.socket_url, socket_timeout=30, retry=None) as client,
    ):
        client.config_set("maxmemory-clients", 32 * MB)
        client.config_set("client-query-buffer-limit", 10 * MB)  # of no use, since each is smaller
        with pytest.raises(redis.ConnectionError):
            client.xadd("x", {f"f{at}": bytes(5 * MB) for at in range(10)})
        assert not client.exists("x")
        assert client.xadd("x", {f"f{at}": bytes(5 * MB) for at in range(3)})
