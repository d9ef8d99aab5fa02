"""How connections to the server are made: every option of the client library is set here.

The library's defaults re-send writes and give up on long blocking reads (measured with redis-py
8.1: one lost reply makes two entries; BLOCK 7000 fails after 59 s), so nothing is left to them:
each command is sent once, RESP2, explicit time-outs, no health checks, one connection per owner.
It introduces itself with commands that a user may lack the right to, and fails then: `introduction`
is sent instead, and its refusal means nothing.
"""

import socket
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..service.addresses import masked_url, redis_url_fault
from ..wire.errors import SettingsError

AnyConnection = redis.Connection | redis.UnixDomainSocketConnection

CONNECT_TIMEOUT_S = 5.0
# A peer that is gone without a word is noticed after 10 + 3 × 5 s, should nothing else notice it.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def _usable(url: str, make: Callable[[], Any]) -> Any:
    """What `make` makes for the URL, which may not overrule what is set here.

    Raises:
        SettingsError: the URL cannot be used.
    """
    fault = redis_url_fault(url)
    if fault:
        raise SettingsError(f"the server's URL {fault}")
    try:
        return make()
    except (ValueError, TypeError, redis.RedisError) as error:
        # The library's words may quote what the URL says, a password for instance.
        raise SettingsError(f"the server's URL cannot be used: {masked_url(url)}") from error


def _options(url: str, timeout_s: float) -> dict[str, Any]:
    return {
        **({} if url.startswith("unix:") else _keepalive()),
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": 0,
        "driver_info": None,
        "max_connections": 1,
    }


def introduction(name: str) -> tuple[Any, ...]:
    """The command that has `CLIENT LIST` show a name."""
    return ("CLIENT", "SETNAME", name)


def _keepalive() -> dict[str, Any]:
    # Some systems lack some of them, and take their own defaults.
    known = {
        getattr(socket, option): seconds
        for option, seconds in _KEEPALIVE.items()
        if hasattr(socket, option)
    }
    return {"socket_keepalive": True, "socket_keepalive_options": known}


def blocking_connection(url: str, timeout_s: float) -> AnyConnection:
    """A connection for one thread; it connects on first use.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: how long one answer may take, time spent blocked in the server included.
    """
    connection = _usable(url, lambda: _blocking_pool(url, timeout_s, 1).make_connection())
    assert isinstance(connection, redis.Connection | redis.UnixDomainSocketConnection)
    return connection


def blocking_pool(url: str, timeout_s: float, connections: int) -> redis.ConnectionPool:
    """Connections for what is written for the library's own client; arguments as above."""
    pool = _usable(url, lambda: _blocking_pool(url, timeout_s, connections))
    assert isinstance(pool, redis.ConnectionPool)
    return pool


def _blocking_pool(url: str, timeout_s: float, connections: int) -> redis.ConnectionPool:
    options = {**_options(url, timeout_s), "max_connections": connections}
    return redis.ConnectionPool.from_url(url, retry=Retry(NoBackoff(), 0), **options)


def looping_connection(url: str, timeout_s: float) -> redis.asyncio.Connection:
    """A connection for one event loop; it connects on first use."""
    retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    connection: redis.asyncio.Connection = _usable(
        url,
        lambda: redis.asyncio.ConnectionPool.from_url(
            url, retry=retry, **_options(url, timeout_s)
        ).make_connection(),
    )
    return connection
