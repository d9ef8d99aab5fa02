"""Intake: takes entries of one model whenever there is room. One thread a model.

No worker ever blocks on a work stream: it waits on bells and reads through `take`, which refuses a
worker that is not among the living. A bell token that gets lost costs a second, never an entry.
"""

from collections.abc import Callable, Mapping, Sequence

from ..broker import fleet, requests
from ..broker.blocking import BlockingExecutor
from ..wire.deployment import VersionRecord
from ..wire.keys import ModelKeys
from ..wire.work import WorkEntry, parse_work
from .batcher import level_of
from .held import Placement

BELL_TIMEOUT_S = 1.0
_EPOCH = -1.0


def placement_of(stream: str) -> Placement:
    """Priority and bucket from the name of a work stream, `…:<priority>:<bucket>`."""
    _, priority, bucket = stream.rsplit(":", 2)
    return Placement(level_of(priority), int(bucket))


class StreamOrder:
    """In which order to read the streams of one version.

    Higher priorities come first; among equals, the stream whose head is the oldest as far as
    known, so that none starves: a stream that was just emptied goes to the end.
    """

    def __init__(self, keys: ModelKeys, record: VersionRecord) -> None:
        self._levels = {
            stream: placement_of(stream).level for stream in fleet.queue_streams(keys, record)
        }
        self._head_ms = dict.fromkeys(self._levels, _EPOCH)

    def streams(self) -> list[str]:
        """All streams, the most urgent first."""
        return sorted(
            self._levels, key=lambda stream: (self._levels[stream], self._head_ms[stream])
        )

    def note(self, asked: Sequence[str], newest_ms: Mapping[str, float], now_ms: float) -> None:
        """Learn from one take: what it read of each stream, up to which time of acceptance.

        Streams that were asked before the last one read from, and gave nothing, were empty.
        """
        # Behind the last one read from, room had run out: nothing is known of those.
        last = max((at for at, stream in enumerate(asked) if stream in newest_ms), default=None)
        for stream in asked[:last]:
            self._head_ms[stream] = now_ms
        for stream, read_ms in newest_ms.items():
            self._head_ms[stream] = read_ms


class Taker:
    """Takes entries of one model on a connection of its own."""

    def __init__(
        self,
        executor: BlockingExecutor,
        keys: ModelKeys,
        worker: str,
        unreadable: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._keys = keys
        self._worker = worker
        self._unreadable = unreadable
        self._orders: dict[str, tuple[tuple[int, ...], StreamOrder | None]] = {}

    def take(
        self, record: VersionRecord, room: int, server_now_ms: float
    ) -> list[tuple[Placement, WorkEntry]]:
        """Take about `room` rows of one version.

        Raises:
            FencedError: this worker is not among the living.
            ServerError: the server failed.
        """
        order = self._order(record)
        asked = order.streams()
        taken = self._executor.run(requests.take(self._keys, self._worker, record, asked, room))
        entries: list[tuple[Placement, WorkEntry]] = []
        newest: dict[str, float] = {}
        for stream, raw_entries in taken:
            placement = placement_of(stream)
            for entry_id, flat in raw_entries:
                try:
                    entry = parse_work(stream, entry_id, flat or ())
                except (KeyError, ValueError, TypeError) as error:
                    self._unreadable(f"{stream} {entry_id.decode()}: {error}")
                    continue
                entries.append((placement, entry))
                newest[stream] = entry.accepted_ms
        order.note(asked, newest, server_now_ms)
        return entries

    def _order(self, record: VersionRecord) -> StreamOrder:
        buckets, order = self._orders.get(record.version, ((), None))
        if order is None or buckets != record.limits.buckets:
            order = StreamOrder(self._keys, record)
            self._orders[record.version] = (record.limits.buckets, order)
        return order
