"""Ingress entries that a router read and did not finish: taking them over, reading them again."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..wire import limits
from ..wire.keys import INGRESS_GROUP
from .commands import Command, as_is, call, plain
from .requests import HEAD_FIELD_BYTES_MAX, HEAD_FIELDS_MAX, Fields

_LAST_ID = "18446744073709551615-0"
_REREAD_BYTES_MAX = 4 * 1024 * 1024


class Claimed(NamedTuple):
    """Ids of entries taken over, and where to continue; None once all were looked at."""

    entry_ids: list[bytes]
    after: str | None


def claim_ingress(
    stream: str, router: str, idle_ms: int, count: int, start: str = "0-0"
) -> Command[Claimed]:
    """Take over entries that another router read and did not finish; accept is idempotent.

    They are pending for `router` then: `reread_ingress` has them, each of which may be too large.
    One call looks at ten times `count` entries at most; there may be more where none was found.
    """
    parts = ("XAUTOCLAIM", stream, INGRESS_GROUP, router, idle_ms, start, "COUNT", count, "JUSTID")
    return plain(_read_claimed, *parts)


def _read_claimed(raw: Sequence[Any]) -> Claimed:
    after = raw[0].decode()
    return Claimed(raw[1], None if after == "0-0" else after)


class Pending(NamedTuple):
    """An entry that a router has read and not ended.

    `fields` is None where it was deleted. Where `is_too_large`, it holds only what is small in the
    entry, which is over what the contract allows.
    """

    entry_id: bytes
    fields: Fields | None
    is_too_large: bool


def reread_ingress(stream: str, router: str, after: str, count: int) -> Command[list[Pending]]:
    """Entries after id `after` that this router has read before and not ended.

    At most `count` and a few megabytes of them, but one at least where there is one.
    """
    args = (
        router, after, count, limits.ENTRY_BYTES_MAX, _REREAD_BYTES_MAX, HEAD_FIELDS_MAX,
        HEAD_FIELD_BYTES_MAX,
    )  # fmt: skip
    return call("reread", [stream], args, _read_pending)


def _read_pending(raw: Any) -> list[Pending]:
    return [Pending(entry_id, fields, is_cut == 1) for entry_id, fields, is_cut in raw]


def probe_ingress(stream: str, router: str) -> Command[Any]:
    """Join the readers of a stream and read nothing; fails where it, or its group, is not there."""
    group = ("GROUP", INGRESS_GROUP, router, "COUNT", 1)
    return plain(as_is, "XREADGROUP", *group, "STREAMS", stream, _LAST_ID)
