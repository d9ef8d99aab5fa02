"""The connection that rq runs on: the client library's own client, with our options.

Only the package `broker` imports the library, and only `ops` imports rq, which wants a client of
it. Each command is sent once, as on our own connections; nothing that rq keeps is ever unpickled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from .connections import blocking_pool
from .errors import raise_translated

# A transaction of rq holds one while its other commands take another.
_CONNECTIONS = 4


def jobs_client(url: str, timeout_s: float) -> Any:
    """A client for rq; it connects on first use.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        timeout_s: how long one answer may take, time spent blocked in the server included.

    Raises:
        SettingsError: the URL cannot be used.
    """
    return redis.Redis(connection_pool=blocking_pool(url, timeout_s, _CONNECTIONS))


@contextmanager
def server_errors() -> Iterator[None]:
    """Errors of the library within the block, as ours.

    Raises:
        ServerError: instead of one of the client library's.
    """
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise_translated(error)
