"""Commands by which routers announce themselves, and by which they are seen.

A router is one string with a life, and its name in a set. Nothing of it hangs on a single model, so
that its cost does not grow with them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..wire.announcements import read_router_announcement
from ..wire.deployment import Stamp
from ..wire.keys import router_key, routers_key
from ..wire.names import is_name
from .commands import Command, as_is, plain

# Of a fleet whose routers are all gone, the names go as well.
_NAMES_TTL_MS = 3_600_000


def announce_router(namespace: str, router: str, announcement: bytes, ttl_ms: int) -> Command[Any]:
    """Write what a router says of itself; it lives for `ttl_ms` unless it is renewed."""
    return plain(as_is, "SET", router_key(namespace, router), announcement, "PX", ttl_ms)


def renew_router(namespace: str, router: str, ttl_ms: int) -> list[Command[int]]:
    """Let what a router has said live on; the first answer is how many bytes there are of it."""
    key = router_key(namespace, router)
    return [plain(int, "STRLEN", key), plain(int, "PEXPIRE", key, ttl_ms)]


def enlist_router(namespace: str, router: str) -> list[Command[int]]:
    """Enter a router among those that are looked for."""
    key = routers_key(namespace)
    return [plain(int, "SADD", key, router), plain(int, "PEXPIRE", key, _NAMES_TTL_MS)]


def forget_names(namespace: str) -> Command[int]:
    """Remove what lies in the place of the names; living routers enter theirs again."""
    return plain(int, "UNLINK", routers_key(namespace))


def withdraw_router(namespace: str, router: str) -> list[Command[int]]:
    """Take a router back that stops."""
    return [
        plain(int, "SREM", routers_key(namespace), router),
        plain(int, "UNLINK", router_key(namespace, router)),
    ]


def router_names(namespace: str) -> Command[list[str]]:
    """Names of all routers that were there, of late or not."""
    return plain(_read_names, "SMEMBERS", routers_key(namespace))


def _read_names(raw: Sequence[bytes]) -> list[str]:
    # What is not a name was written by somebody else.
    return [name for name in sorted(item.decode(errors="replace") for item in raw) if is_name(name)]


def router_stamps(namespace: str, router: str) -> Command[Mapping[str, Stamp] | None]:
    """By which deploy record of each model a router acts; None where it gives no sign of life."""
    read = lambda raw: None if raw is None else read_router_announcement(raw)  # noqa: E731 - a reader
    return plain(read, "GET", router_key(namespace, router))


def prune_names(namespace: str, silent: Sequence[str]) -> Command[int]:
    """Forget names of routers without a sign of life; one that comes back enters again."""
    return plain(int, "SREM", routers_key(namespace), *silent)
