"""Streams with consumer groups: entries in order, and who has read which and not ended it."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...broker.errors import refused

# The server drops whole nodes of this many entries when it may trim approximately.
_NODE_ENTRIES = 100
_SEQUENCE_MAX = 2**64 - 1


class EntryId(NamedTuple):
    """Milliseconds of the server's clock, and a number within these."""

    ms: int
    sequence: int

    def __bytes__(self) -> bytes:
        return b"%d-%d" % self

    def next(self) -> "EntryId":
        """The least id above this one."""
        return EntryId(self.ms, self.sequence + 1)


LOWEST = EntryId(0, 0)
HIGHEST = EntryId(_SEQUENCE_MAX, _SEQUENCE_MAX)


def read_id(text: bytes, sequence: int = 0) -> EntryId:
    """An id as written; `sequence` stands for a part that is left out.

    Raises:
        RefusedError: it is none.
    """
    ms, dash, rest = text.partition(b"-")
    if not ms.isdigit() or (dash and not rest.isdigit()):
        raise refused("ERR Invalid stream ID specified as stream command argument")
    return EntryId(int(ms), int(rest) if dash else sequence)


@dataclass(slots=True)
class Pending:
    """An entry that was handed to a consumer and not acknowledged."""

    consumer: bytes
    delivered_ms: int
    deliveries: int = 1


@dataclass(slots=True)
class Group:
    """What a group has read: everything up to `last`; `pending` is what is not ended."""

    last: EntryId
    pending: dict[EntryId, Pending] = field(default_factory=dict)
    seen_ms: dict[bytes, int] = field(default_factory=dict)  # by consumer: its last attempt to read

    def pending_from(self, start: EntryId, consumer: bytes | None = None) -> Iterator[EntryId]:
        """Ids not ended, in order."""
        for entry_id in sorted(self.pending):
            held = self.pending[entry_id]
            if entry_id >= start and consumer in (None, held.consumer):
                yield entry_id


class Stream:
    """Entries by id. It stays when it is empty, as the server's does."""

    def __init__(self) -> None:
        self._ids: list[EntryId] = []  # ascending
        self._fields: dict[EntryId, list[bytes]] = {}
        self.last = LOWEST
        self.groups: dict[bytes, Group] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, entry_id: EntryId) -> list[bytes] | None:
        """Fields and values of an entry; None where it is not there any more."""
        return self._fields.get(entry_id)

    def add(self, entry_id: EntryId, fields: list[bytes]) -> None:
        """Add an entry.

        Raises:
            RefusedError: the id is not above the last one.
        """
        if entry_id <= self.last:
            raise refused(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            )
        insort(self._ids, entry_id)
        self._fields[entry_id] = fields
        self.last = entry_id

    def next_id(self, now_ms: int) -> EntryId:
        """The id that the server would give an entry now."""
        return EntryId(now_ms, 0) if now_ms > self.last.ms else self.last.next()

    def between(self, first: EntryId, last: EntryId) -> list[EntryId]:
        """Ids from `first` to `last`, both included."""
        return self._ids[bisect_left(self._ids, first) : bisect_right(self._ids, last)]

    def after(self, entry_id: EntryId) -> list[EntryId]:
        """Ids above one."""
        return self._ids[bisect_right(self._ids, entry_id) :]

    def delete(self, entry_id: EntryId) -> bool:
        """Delete an entry; groups keep it among their pending ones."""
        if self._fields.pop(entry_id, None) is None:
            return False
        del self._ids[bisect_left(self._ids, entry_id)]
        return True

    def trim(self, length: int, *, approximately: bool) -> None:
        """Drop the oldest entries beyond `length`."""
        over = max(0, len(self._ids) - length)
        if approximately:
            over -= over % _NODE_ENTRIES
        for entry_id in self._ids[:over]:
            del self._fields[entry_id]
        del self._ids[:over]
