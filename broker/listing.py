"""Commands for lists of requests: open ones, and those in a stream. They change nothing."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..wire.keys import WORK_GROUP, ModelKeys
from .commands import Command, call, plain
from .requests import HEAD_FIELD_BYTES_MAX, HEAD_FIELDS_MAX, Entry, read_entries

_HEAD = (HEAD_FIELDS_MAX, HEAD_FIELD_BYTES_MAX)


def open_members(keys: ModelKeys, start: int, count: int) -> Command[list[tuple[str, float]]]:
    """`count` members of `due` from number `start` on, with their deadlines, the next due first."""
    return plain(_read_scores, "ZRANGE", keys.due, start, start + count - 1, "WITHSCORES")


def _read_scores(raw: Sequence[bytes]) -> list[tuple[str, float]]:
    return [(raw[at].decode(errors="replace"), float(raw[at + 1])) for at in range(0, len(raw), 2)]


def heads(stream: str, start: str, count: int) -> Command[list[Entry]]:
    """Entries of a stream from id `start` on, the oldest first; their `inputs` are left empty."""
    return call("heads", [stream], ["XRANGE", start, "+", count, *_HEAD], read_entries)


def latest_heads(stream: str, before: str, count: int) -> Command[list[Entry]]:
    """The same from id `before` (`+` = the newest, `(id` = older) back, the newest first."""
    return call("heads", [stream], ["XREVRANGE", before, "-", count, *_HEAD], read_entries)


class Taken(NamedTuple):
    """An entry that a worker holds; `deliveries` counts how often it was handed out."""

    entry_id: bytes
    worker: str
    deliveries: int


def taken(stream: str, start: str, count: int) -> Command[list[Taken]]:
    """Entries of a work stream that workers hold, from id `start` on."""
    return plain(_read_taken, "XPENDING", stream, WORK_GROUP, start, "+", count)


def _read_taken(raw: Any) -> list[Taken]:
    return [Taken(entry_id, worker.decode(), count) for entry_id, worker, _, count in raw]


def parked_until(keys: ModelKeys, start: int, count: int) -> Command[list[tuple[str, float]]]:
    """`count` parked entry ids from number `start` on, with the server time (ms) of their move."""
    return plain(_read_scores, "ZRANGE", keys.later, start, start + count - 1, "WITHSCORES")
