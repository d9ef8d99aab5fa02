"""Commands on ingress streams, for routers: read new entries, claim and reread old ones, drop."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..wire import limits
from ..wire.keys import INGRESS_GROUP, ModelKeys
from .commands import Command, Part, as_is, call, plain, waiting_command
from .requests import HEAD_FIELD_BYTES_MAX, HEAD_FIELDS_MAX, Entry, Fields, read_streams

_LAST_ID = "18446744073709551615-0"
_REREAD_BYTES_MAX = 4 * 1024 * 1024
# One read of new entries; where they are larger, they are read again in portions.
READ_BYTES_MAX = 32 * 1024 * 1024


def read(
    streams: Sequence[str], router: str, count: int, block_ms: int
) -> Command[list[tuple[str, list[Entry]]]]:
    """Read new entries of ingress streams, waiting up to `block_ms`.

    `count` is per stream. A field list is None where the entry was deleted meanwhile.

    Raises (when run):
        OverlongAnswerError: they are too large to be read at once; `reread` has them.
    """
    group: tuple[Part, ...] = ("GROUP", INGRESS_GROUP, router, "COUNT", count)
    block: tuple[Part, ...] = ("BLOCK", block_ms) if block_ms > 0 else ()
    news = [">"] * len(streams)
    parts = ("XREADGROUP", *group, *block, "STREAMS", *streams, *news)
    return waiting_command(read_streams, block_ms / 1000, *parts, bytes_max=READ_BYTES_MAX)


class Claimed(NamedTuple):
    """Ids of entries taken over, and where to continue; None once all were looked at."""

    entry_ids: list[bytes]
    after: str | None


def claim(
    stream: str, router: str, idle_ms: int, count: int, start: str = "0-0"
) -> Command[Claimed]:
    """Take over entries that another router read and did not finish; accept is idempotent.

    They are pending for `router` then: `reread` has them, each of which may be too large.
    One call looks at ten times `count` entries at most; there may be more where none was found.
    """
    parts = ("XAUTOCLAIM", stream, INGRESS_GROUP, router, idle_ms, start, "COUNT", count, "JUSTID")
    return plain(_read_claimed, *parts)


def _read_claimed(raw: Sequence[Any]) -> Claimed:
    after = raw[0].decode()
    return Claimed(raw[1], None if after == "0-0" else after)


class PendingEntry(NamedTuple):
    """An entry that a router has read and not ended.

    `fields` is None where it was deleted. Where `is_too_large`, it holds only what is small in the
    entry, which is over what the contract allows.
    """

    entry_id: bytes
    fields: Fields | None
    is_too_large: bool


def reread(stream: str, router: str, after: str, count: int) -> Command[list[PendingEntry]]:
    """Entries after id `after` that this router has read before and not ended.

    At most `count` and a few megabytes of them, but one at least where there is one.
    """
    args = (
        router, after, count, limits.ENTRY_BYTES_MAX, _REREAD_BYTES_MAX, HEAD_FIELDS_MAX,
        HEAD_FIELD_BYTES_MAX,
    )  # fmt: skip
    return call("reread", [stream], args, _read_pending)


def _read_pending(raw: Any) -> list[PendingEntry]:
    return [PendingEntry(entry_id, fields, is_cut == 1) for entry_id, fields, is_cut in raw]


def probe(stream: str, router: str) -> Command[Any]:
    """Join the readers of a stream and read nothing; fails where it, or its group, is not there."""
    group = ("GROUP", INGRESS_GROUP, router, "COUNT", 1)
    return plain(as_is, "XREADGROUP", *group, "STREAMS", stream, _LAST_ID)


def drop(stream: str, entry_ids: Sequence[bytes]) -> list[Command[Any]]:
    """End ingress entries that nobody can be answered for."""
    # In this order: of what is deleted and not acknowledged, the next look is reminded.
    delete = plain(as_is, "XDEL", stream, *entry_ids)
    return [delete, plain(as_is, "XACK", stream, INGRESS_GROUP, *entry_ids)]


def prune_readers(keys: ModelKeys, tenant: str, idle_ms: int) -> Command[int]:
    """Remove routers that are gone from the readers of an ingress stream; returns how many."""
    return call("prune", [keys.ingress(tenant)], [idle_ms], int)
