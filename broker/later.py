"""Commands on requests that are parked until a later time: delayed ones, and failed ones."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..wire.deployment import Stamp
from ..wire.keys import ModelKeys, member
from ..wire.work import WorkEntry
from .commands import Command, Part, call, plain


class RipeItem(NamedTuple):
    """A parked request whose time has come; `version` is set where the caller named it."""

    parked_id: bytes
    queue: str
    bell: str
    request_id: str
    tenant: str
    version: str


class Promoted(Enum):
    """What became of one item of a promote call; `lua/promote.lua` explains them."""

    MOVED = b"MOVED"
    CLOSED = b"CLOSED"
    GONE = b"GONE"
    STALE = b"STALE"


class Retried(Enum):
    """What became of a retry; `lua/retry.lua` explains them."""

    PARKED = b"PARKED"
    CLOSED = b"CLOSED"
    NOT_MINE = b"NOT_MINE"
    STALE = b"STALE"


def ripe(keys: ModelKeys, count: int) -> Command[list[RipeItem]]:
    """Parked requests whose time has come, the longest overdue first."""
    return call("ripe", [keys.later, keys.parked], [count], _read_ripe)


def _read_ripe(raw: Sequence[Any]) -> list[RipeItem]:
    # Somebody else may have written any bytes; reading them this way changes nothing else.
    return [
        RipeItem(item[0], *(part.decode(errors="replace") for part in item[1:])) for item in raw
    ]


def forget(keys: ModelKeys, parked_ids: Sequence[bytes]) -> list[Command[int]]:
    """Drop parked entries that neither a router nor a worker wrote."""
    body = plain(int, "XDEL", keys.parked, *parked_ids)
    return [body, plain(int, "ZREM", keys.later, *parked_ids)]


def promote(keys: ModelKeys, stamp: Stamp, items: Sequence[RipeItem]) -> Command[list[Promoted]]:
    """Move parked requests to their queues; one outcome per item.

    Raises (when run):
        StaleRecordError: the deploy record is another than that of `stamp`; nothing was moved.
    """
    script_keys: list[Part] = [keys.due, keys.later, keys.parked, keys.deploy]
    for item in items:
        # Of an entry that is gone no place is known; on a Cluster, '' would be of another slot.
        script_keys += (item.queue or keys.parked, item.bell or keys.parked)
    return call(
        "promote",
        script_keys,
        [*stamp, *(item.parked_id for item in items)],
        lambda raw: [Promoted(outcome) for outcome in raw],
    )


def retry(
    keys: ModelKeys, worker: str, entry: WorkEntry, bell: str, delay_ms: int
) -> Command[Retried]:
    """Park a request of this worker's that failed; it runs again in `delay_ms`.

    `STALE` where it cannot be parked: it is still the worker's, to be answered with its failure.
    """
    script_keys = [keys.due, keys.later, keys.parked, entry.stream, bell]
    args: list[Part] = [
        worker,
        entry.entry_id,
        member(entry.tenant, entry.id),
        delay_ms,
        *entry.next_run,
    ]
    return call("retry", script_keys, args, Retried)
