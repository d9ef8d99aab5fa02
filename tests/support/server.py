"""The servers that tests run against, and how a test leaves nothing behind on them.

The only place that looks for a server program: a machine may lack any of them but the packaged one.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from batchfleet.broker.embedded import EmbeddedServer, ServerOptions, find_server

from .ports import free_port

KINDS = ("valkey9", "redis7")
_SCAN_COUNT = 1000
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A running server. `socket_url` equals `url` where the server is not ours.

    `pid` is None for a server that the tests found running: they must not signal, configure or
    flush it.
    """

    url: str
    socket_url: str
    pid: int | None


def program_of(kind: str) -> str:
    """The program of a kind of server.

    Raises:
        ValueError: there is no such kind.
        FileNotFoundError: this machine has no such server.
    """
    if kind not in KINDS:
        raise ValueError(f"BATCHFLEET_TEST_SERVER is {kind!r}; use one of {', '.join(KINDS)}")
    program = find_server() if kind == KINDS[0] else shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError(f"{kind} needs redis-server on the PATH")
    return program


def program_or_skip(kind: str) -> str:
    """The same for a test that also runs on machines without this server: it is skipped there."""
    try:
        return program_of(kind)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@contextmanager
def private_server(kind: str = KINDS[0], folder: Path | None = None) -> Iterator[EmbeddedServer]:
    """A server of a test's own, on socket and port; the test is skipped where there is none."""
    options = ServerOptions(program=program_or_skip(kind), port=free_port(), folder=folder)
    server = EmbeddedServer(options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def running_server(environ: Mapping[str, str]) -> Iterator[ServerAddress]:
    """A private server of the kind that the environment asks for, or the user's own server.

    `BATCHFLEET_REDIS_URL` points at a server of the user's own, which is left as it is.
    """
    foreign = environ.get("BATCHFLEET_REDIS_URL")
    if foreign:
        yield ServerAddress(url=foreign, socket_url=foreign, pid=None)
        return
    program = program_of(environ.get("BATCHFLEET_TEST_SERVER", KINDS[0]))
    server = EmbeddedServer(ServerOptions(program=program, port=free_port()))
    server.start()
    try:
        yield ServerAddress(url=server.url, socket_url=server.socket_url, pid=server.pid)
    finally:
        server.stop()


def url_as(url, user, password):
    """The URL of a server for another of its users."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{password}@{rest.rpartition('@')[2]}"


def _leave_rq(client, queue):
    """Take a queue, and the workers that had it, from the lists that all users of rq share."""
    client.srem("rq:queues", f"rq:queue:{queue}")
    if workers := client.smembers(f"rq:workers:{queue}"):
        client.srem("rq:workers", *workers)
        client.unlink(*workers)


def delete_namespace(url: str, namespace: str) -> int:
    """Unlink every key of one namespace, and nothing else; return how many there were.

    Of rq those that bear its name: its queue, its jobs; and what rq lists of both.
    """
    patterns = (f"{namespace}:*", f"rq:*:{namespace}:*", f"rq:*:{namespace}_*")
    with redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, retry=None) as client:
        found = [client.scan_iter(match=pattern, count=_SCAN_COUNT) for pattern in patterns]
        keys = [key for some in found for key in some]
        _leave_rq(client, f"{namespace}:rolls")
        # One command a key: on a cluster, keys of several slots cannot go with one.
        for start in range(0, len(keys), _SCAN_COUNT):
            pipeline = client.pipeline(transaction=False)
            for key in keys[start : start + _SCAN_COUNT]:
                pipeline.unlink(key)
            pipeline.execute()
    return len(keys)
