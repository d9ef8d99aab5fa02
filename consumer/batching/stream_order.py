"""In which order a worker reads the streams of one version. Pure."""

from collections.abc import Mapping, Sequence

from ...broker import fleet
from ...wire.deployment import VersionRecord
from ...wire.keys import ModelKeys, Queue
from .batcher import level_of
from .state import Placement

# A stream whose head is this many times the age cap old is read as if it were of high priority.
_PATIENCE = 4


def placement_of(stream: str) -> Placement:
    """Priority and bucket from the name of a work stream."""
    queue = Queue.parse(stream)
    return Placement(level_of(queue.priority), queue.edge)


class StreamOrder:
    """Remembers how old the heads of the streams are, as far as takes have told.

    Higher priorities come first; among equals, the stream with the oldest head. A stream that was
    just emptied goes to the end, one that has waited too long to the front: none starves.
    """

    def __init__(self, keys: ModelKeys, record: VersionRecord, now_ms: float) -> None:
        self._levels = {
            stream: placement_of(stream).level for stream in fleet.queue_streams(keys, record)
        }
        self._patience_ms = _PATIENCE * record.limits.age_cap_ms
        self._head_ms = dict.fromkeys(self._levels, now_ms)

    def streams(self, now_ms: float) -> list[str]:
        """All streams, the most urgent first. `now_ms` is server time, as in `note`."""
        return sorted(self._levels, key=lambda stream: self._urgency(stream, now_ms))

    def _urgency(self, stream: str, now_ms: float) -> tuple[int, float]:
        head_ms = self._head_ms[stream]
        overdue = now_ms - head_ms > self._patience_ms
        return (0 if overdue else self._levels[stream], head_ms)

    def note(self, asked: Sequence[str], newest_ms: Mapping[str, float], now_ms: float) -> None:
        """Learn from one take that asked these streams in this order.

        Args:
            asked: the streams, as they were asked.
            newest_ms: for each stream that gave something, when the last of it was accepted.
            now_ms: server time of the take.
        """
        # Behind the last one read from, room may have run out: nothing is known of those.
        last = max((at for at, stream in enumerate(asked) if stream in newest_ms), default=None)
        for stream in asked[:last]:
            self._head_ms[stream] = now_ms
        for stream, read_ms in newest_ms.items():
            self._head_ms[stream] = read_ms
