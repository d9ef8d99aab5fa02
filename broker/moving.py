"""Commands on requests that wait in a queue and are to be placed anew: by another deploy record."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..wire.deployment import Stamp
from ..wire.keys import ModelKeys
from .commands import Command, Part, call
from .requests import HEAD_FIELD_BYTES_MAX, HEAD_FIELDS_MAX, TAKE_BYTES_MAX, Fields

MOVE_ITEMS_MAX = 64


class WaitingEntry(NamedTuple):
    """An entry that no worker has taken yet; of its `fields`, large ones are left empty."""

    entry_id: bytes
    inputs_bytes: int
    fields: Fields


class MoveItem(NamedTuple):
    """A waiting entry, and where it is to go."""

    entry_id: bytes
    queue: str
    bell: str


class Moved(Enum):
    """What became of one item of a move call; `lua/move.lua` explains them."""

    MOVED = b"MOVED"
    TAKEN = b"TAKEN"
    GONE = b"GONE"
    STALE = b"STALE"
    LATER = b"LATER"


def waiting(
    queue: str, after: bytes = b"", count: int = MOVE_ITEMS_MAX
) -> Command[list[WaitingEntry]]:
    """Entries of a queue that no worker has taken, behind id `after`, in order."""
    args: list[Part] = [after, count, HEAD_FIELDS_MAX, HEAD_FIELD_BYTES_MAX]
    return call("waiting", [queue], args, _read_waiting)


def _read_waiting(raw: Sequence[Any]) -> list[WaitingEntry]:
    return [WaitingEntry(*item) for item in raw]


def move(
    keys: ModelKeys, stamp: Stamp, queue: str, items: Sequence[MoveItem]
) -> Command[list[Moved]]:
    """Move waiting entries of `queue`, in this order, at most `MOVE_ITEMS_MAX`; an outcome each.

    Raises (when run):
        StaleRecordError: the deploy record is another than that of `stamp`; nothing was moved.
    """
    script_keys: list[Part] = [keys.due, keys.deploy, queue]
    for item in items:
        script_keys += (item.queue, item.bell)
    args: list[Part] = [*stamp, TAKE_BYTES_MAX, *(item.entry_id for item in items)]
    return call("move", script_keys, args, lambda raw: [Moved(outcome) for outcome in raw])
