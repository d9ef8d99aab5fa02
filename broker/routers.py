"""Commands on routers: how they announce themselves, and how operators see them.

A router is one string that expires, and its name in a set. None of it is per model, so that the
cost does not grow with the number of models.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..wire.announcements import read_router_announcement
from ..wire.deployment import Stamp
from ..wire.keys import router_key, routers_key
from ..wire.names import is_name
from .commands import Command, as_is, plain

# If all routers of a fleet are gone, their names expire too.
_NAMES_TTL_MS = 3_600_000


def announce(namespace: str, router: str, announcement: bytes, ttl_ms: int) -> Command[Any]:
    """Write a router's announcement; it expires after `ttl_ms` unless it is renewed."""
    return plain(as_is, "SET", router_key(namespace, router), announcement, "PX", ttl_ms)


def renew(namespace: str, router: str, ttl_ms: int) -> list[Command[int]]:
    """Renew a router's announcement; the first answer is its length in bytes, 0 if it is gone."""
    key = router_key(namespace, router)
    return [plain(int, "STRLEN", key), plain(int, "PEXPIRE", key, ttl_ms)]


def enlist(namespace: str, router: str) -> list[Command[int]]:
    """Add a router to the set of names."""
    key = routers_key(namespace)
    return [plain(int, "SADD", key, router), plain(int, "PEXPIRE", key, _NAMES_TTL_MS)]


def forget_names(namespace: str) -> Command[int]:
    """Remove the set of names, whatever its type; live routers add theirs again."""
    return plain(int, "UNLINK", routers_key(namespace))


def leave(namespace: str, router: str) -> list[Command[int]]:
    """Remove a router that stops, and its name."""
    return [
        plain(int, "SREM", routers_key(namespace), router),
        plain(int, "UNLINK", router_key(namespace, router)),
    ]


def names(namespace: str) -> Command[list[str]]:
    """Names of all routers of the last hour, live or not."""
    return plain(_read_names, "SMEMBERS", routers_key(namespace))


def _read_names(raw: Sequence[bytes]) -> list[str]:
    # What is not a name was written by somebody else.
    return [name for name in sorted(item.decode(errors="replace") for item in raw) if is_name(name)]


def stamps(namespace: str, router: str) -> Command[Mapping[str, Stamp] | None]:
    """The deploy record of each model that a router follows; None where it is not live."""
    read = lambda raw: None if raw is None else read_router_announcement(raw)  # noqa: E731 - a reader
    return plain(read, "GET", router_key(namespace, router))


def prune_names(namespace: str, silent: Sequence[str]) -> Command[int]:
    """Remove names of routers that are not live; one that comes back adds its own again."""
    return plain(int, "SREM", routers_key(namespace), *silent)
