"""The pump: reads a group of ingress streams and hands on what it has read."""

from collections.abc import Sequence
from itertools import groupby

from ..broker import ingress
from ..broker.errors import NoGroupError, OverlongAnswerError, UnusableKeyError
from ..broker.interface import Executor
from ..broker.requests import Entry
from ..wire.errors import ServerError
from ..wire.keys import ModelKeys
from .admitter import Admitter, bytes_of

# Blocking on more streams makes each add dearer for the server (measured: 4 × 145 streams, 356 µs).
STREAMS_MAX = 8
BLOCK_MS = 1000
_READ_COUNT = 256
_READ_COUNT_MIN = 4
_READ_BYTES = 16 * 1024 * 1024
_BURST_MIN = 4.0
_BURST_SMOOTH = 0.1
# A router reads at least once a second while it lives.
_FORGET_ROUTER_MS = 60_000


class Pump:
    """Reads the ingress streams of some tenants of one model, for an admitter."""

    def __init__(
        self,
        reader: Executor,
        admitter: Admitter,
        keys: ModelKeys,
        router: str,
        tenants: Sequence[str],
    ) -> None:
        self._reader = reader
        self._admitter = admitter
        self._keys = keys
        self._tenant_of = {keys.ingress(tenant): tenant for tenant in tenants}
        self._router = router
        self._usable = list(self._tenant_of)  # streams that do not spoil the read of the others
        self._entry_bytes = _READ_BYTES / _READ_COUNT  # mean of one entry, slow to fall
        self._burst = 0.0  # entries of one read, smoothed
        self._unfinished = True  # entries of ours may be pending after an error

    def run_once(self) -> int:
        """Wait for entries and handle them; returns how many were read.

        Raises:
            ServerError: the server failed; the next call starts with what is pending.
        """
        if not self._usable:
            self._probe()
        streams = self._usable
        try:
            if self._unfinished:
                self._unfinished = False
                self._handle_pending(streams)
            return self._handle(self._read(streams))
        except OverlongAnswerError:
            self._unfinished = True  # what was read is pending, and is read again in portions
            self._entry_bytes = _READ_BYTES
            return 0
        except (NoGroupError, UnusableKeyError):
            self._unfinished = True
            self._probe()
            if self._usable == streams:
                raise
            return 0
        except Exception:
            self._unfinished = True
            raise

    @property
    def has_left(self) -> bool:
        """Whether entries are pending for us, which the next pass handles again."""
        return self._unfinished

    def _probe(self) -> None:
        """Find the streams that can be read; one that cannot must not keep the others waiting.

        Raises:
            ServerError: none can.
        """
        streams = list(self._tenant_of)
        probes = [ingress.probe(stream, self._router) for stream in streams]
        answers = self._reader.run_each(probes)
        faults = [answer for answer in answers if isinstance(answer, ServerError)]
        self._usable = [
            stream
            for stream, answer in zip(streams, answers, strict=True)
            if not isinstance(answer, ServerError)
        ]
        if not self._usable:
            raise faults[0]

    def _read(self, streams: Sequence[str]) -> list[tuple[str, list[Entry]]]:
        """Wait for new entries.

        The server hands a reader that was blocked the one entry that woke it, and nothing of the
        burst behind. Where bursts are usual, a second look takes the rest of it along.
        """
        wanted = self._read_count()
        news = ingress.read(streams, self._router, wanted, BLOCK_MS)
        entries: list[tuple[str, list[Entry]]] = self._reader.run(news)
        count = _count(entries)
        if count == 1 and self._burst > _BURST_MIN:
            rest = ingress.read(streams, self._router, wanted, 0)
            behind = self._reader.run(rest)
            entries += behind
            count = _count(entries)
        if count:
            self._burst += _BURST_SMOOTH * (count - self._burst)
            mean = sum(bytes_of(read) for _, read in entries) / count
            self._entry_bytes = max(mean, (1 - _BURST_SMOOTH) * self._entry_bytes)
        return entries

    def _read_count(self) -> int:
        """How many entries to ask for, so that large ones do not fill the memory."""
        return max(_READ_COUNT_MIN, min(_READ_COUNT, int(_READ_BYTES / self._entry_bytes)))

    def _handle_pending(self, streams: Sequence[str]) -> None:
        for stream in streams:
            self._reader.run(ingress.probe(stream, self._router))
            after = "0"
            while pending := self._reader.run(
                ingress.reread(stream, self._router, after, _READ_COUNT)
            ):
                after = pending[-1].entry_id.decode()
                for is_too_large, group in groupby(pending, lambda entry: entry.is_too_large):
                    entries = [(entry.entry_id, entry.fields) for entry in group]
                    self._hand_on(stream, entries, is_too_large=is_too_large)

    def claim(self, idle_ms: int) -> int:
        """Take over what dead routers have left; `accept` is idempotent."""
        claimed = 0
        if len(self._usable) < len(self._tenant_of):
            self._probe()
            self._unfinished = True
        for stream in self._usable:
            after: str | None = "0-0"
            taken = False
            while after is not None:
                command = ingress.claim(stream, self._router, idle_ms, _READ_COUNT, after)
                entry_ids, after = self._reader.run(command)
                claimed += len(entry_ids)
                taken = taken or bool(entry_ids)
            if taken:
                self._handle_pending([stream])
        return claimed

    def prune(self) -> None:
        """Have the server forget routers that have been gone for long."""
        for stream in self._usable:
            tenant = self._tenant_of[stream]
            self._reader.run(ingress.prune_readers(self._keys, tenant, _FORGET_ROUTER_MS))

    def _handle(self, streams: list[tuple[str, list[Entry]]]) -> int:
        for stream, entries in streams:
            self._hand_on(stream, entries)
        return _count(streams)

    def _hand_on(
        self, stream: str, entries: Sequence[Entry], *, is_too_large: bool = False
    ) -> None:
        handle = self._admitter.refuse_large if is_too_large else self._admitter.handle
        if not handle(self._tenant_of[stream], entries):
            self._unfinished = True


def _count(streams: Sequence[tuple[str, Sequence[Entry]]]) -> int:
    return sum(len(entries) for _, entries in streams)
