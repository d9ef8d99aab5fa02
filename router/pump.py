"""The ingress pump: entries in, one accept call a batch out. One thread a group of streams."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from ..broker import claiming, fleet, requests
from ..broker.errors import NoGroupError, OverlongAnswerError, StaleRecordError, UnusableKeyError
from ..broker.interface import Executor
from ..broker.requests import Accepted, AcceptItem, Entry
from ..service.fault_points import FaultPoints
from ..wire.codec import JSON
from ..wire.errors import ErrorBody, ErrorKind, ServerError
from ..wire.keys import ModelKeys
from ..wire.limits import ACCEPT_ITEMS_MAX, ENTRY_BYTES_MAX
from ..wire.reply import Envelope
from ..wire.request import cancelled_id, find_id
from .admission import Situation, admit, envelope_of, refuse
from .sweeping import CANCELLED, end_requests

# Blocking on more streams makes each add dearer for the server (measured: 4 × 145 streams, 356 µs).
STREAMS_MAX = 8
BLOCK_MS = 1000
_READ_COUNT = 256
_READ_COUNT_MIN = 4
_READ_BYTES = 16 * 1024 * 1024
_ACCEPT_BYTES = 4 * 1024 * 1024
_STALE_TRIES = 3
_BURST_MIN = 4.0
# A router reads at least once a second while it lives.
_FORGET_ROUTER_MS = 60_000
_BURST_SMOOTH = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpDesk:
    """What a pump has of its program.

    Attributes:
        situation: gives the present situation of the model; None once it is not deployed.
        refresh: reads the model's deploy record anew, and gives the situation by it.
        dropped: told how many entries of which kind nobody could be answered for.
        failed: told of an error that nobody foresaw, for which an entry was passed over.
        ahead: told the tenant and id of an entry whose id lies ahead of the server's clock.
        faults: moments that a test may have armed.
    """

    situation: Callable[[], Situation | None]
    refresh: Callable[[], Situation | None]
    dropped: Callable[[str, int], None]
    failed: Callable[[Exception], None]
    ahead: Callable[[str, bytes], None]
    faults: FaultPoints


class Admitter:
    """One pass of the pump over entries that were read. Owns nothing but its connection.

    Args:
        executor: a command connection of the pump's own.
    """

    def __init__(self, executor: Executor, keys: ModelKeys, desk: PumpDesk) -> None:
        self._executor = executor
        self._keys = keys
        self._desk = desk
        self.opened = 0  # written by the pump's thread, read by the keeper

    def handle(self, tenant: str, entries: Sequence[Entry]) -> bool:
        """Accept, refuse or drop each entry; one that makes us fail is answered `internal`.

        Returns whether all are ended; else some stay pending, since their deploy record is not
        there, or changes faster than it can be read.

        Raises:
            ServerError: the server failed; what was not finished stays pending for the next pass.
        """
        done = 0
        try:
            for takes_back, some in _cut(entries):
                self._desk.faults.reach("router.after_read")
                handle = self._cancel if takes_back else self._handle_some
                if not handle(tenant, some):
                    return False  # and what comes after would not be either
                done += len(some)
        except ServerError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, which concerns one entry
            return self._handle_apart(tenant, entries[done:], error)
        return True

    def _handle_apart(self, tenant: str, entries: Sequence[Entry], error: Exception) -> bool:
        """One of these entries, the first of them if it is alone, has made us fail.

        What of them was finished is so for good: accepting twice does no harm.
        """
        if len(entries) > 1:
            return all(self.handle(tenant, [entry]) for entry in entries)
        self._desk.failed(error)
        return all(self._end(tenant, entry_id, flat or (), _INTERNAL) for entry_id, flat in entries)

    def _end(
        self, tenant: str, entry_id: bytes, flat: Sequence[bytes], error: ErrorBody, kind: str = ""
    ) -> bool:
        """Answer an entry by as little code as can be, and end it; told as `kind` if nobody can."""
        situation = self._desk.situation()
        if situation is None:
            return False
        stream = self._keys.ingress(tenant)
        request_id = None if b"cancel" in flat else find_id(flat)
        if request_id is None:
            self._executor.run_all(requests.drop_ingress(stream, [entry_id]))
            if kind:
                self._desk.dropped(kind, 1)
            return True
        envelope = Envelope(id=request_id, tenant=tenant, accept=JSON, model=self._keys.model)
        if kind:  # nothing is wrong with us
            envelope = envelope_of(request_id, tenant, self._keys.model, flat)
        item = refuse(entry_id, envelope, error)
        stamp = situation.model.deployment.stamp
        try:
            self._executor.run(requests.accept(self._keys, stream, stamp, 0, [item]))
        except StaleRecordError:
            self._desk.refresh()  # the next pass finds it pending
            return False
        return True

    def refuse_large(self, tenant: str, entries: Sequence[Entry]) -> bool:
        """Answer `too_large` to entries of which only heads were read; returns as `handle`."""
        return all(
            self._end(tenant, entry_id, flat or (), _TOO_LARGE, "too_large")
            for entry_id, flat in entries
        )

    def _cancel(self, tenant: str, entries: Sequence[Entry]) -> bool:
        """Answer `cancelled` for what is open; an id that is not leaves no trace."""
        situation = self._desk.situation()
        if situation is None:
            return False
        named = [(request_id, flat) for _, flat in entries if (request_id := _cancelled(flat))]
        envelopes = [
            envelope_of(request_id, tenant, self._keys.model, flat or ())
            for request_id, flat in named
        ]
        end_requests(self._executor, situation.model, envelopes, CANCELLED)
        stream = self._keys.ingress(tenant)
        self._executor.run_all(requests.drop_ingress(stream, [entry_id for entry_id, _ in entries]))
        return True

    def _handle_some(self, tenant: str, entries: Sequence[Entry]) -> bool:
        situation = self._desk.situation()
        for _ in range(_STALE_TRIES):
            if situation is None:
                return False
            items = self._admit_all(tenant, entries, situation)
            outcomes = self._accept(tenant, items, situation)
            opened = outcomes.count(Accepted.OK)
            self.opened += opened
            if opened == len(items):
                return True
            self._report_ahead(tenant, items, outcomes)
            stale = _stale_among(items, outcomes)
            stale |= self._refuse_late(tenant, items, outcomes, situation)
            if not stale:
                return True
            entries = [entry for entry in entries if entry[0] in stale]
            situation = self._desk.refresh()
        return situation is not None and self._refuse_all(tenant, entries, situation)

    def _admit_all(
        self, tenant: str, entries: Sequence[Entry], situation: Situation
    ) -> list[AcceptItem]:
        items: list[AcceptItem] = []
        nameless: list[bytes] = []
        kinds: Counter[str] = Counter()
        for entry_id, flat in entries:
            item = None if flat is None else admit(entry_id, flat, tenant, situation)
            if item is not None:
                items.append(item)
                continue
            nameless.append(entry_id)
            kinds["deleted" if flat is None else "without_id"] += 1
        if nameless:
            stream = self._keys.ingress(tenant)
            self._executor.run_all(requests.drop_ingress(stream, nameless))
            for kind, count in kinds.items():
                self._desk.dropped(kind, count)
        return items

    def _accept(self, tenant: str, items: list[AcceptItem], situation: Situation) -> list[Accepted]:
        if not items:
            return []
        limits = situation.model.deployment.limits
        stream = self._keys.ingress(tenant)
        stamp = situation.model.deployment.stamp
        self._desk.faults.reach("router.before_accept")
        command = requests.accept(self._keys, stream, stamp, limits.backlog, items)
        try:
            _, outcomes = self._executor.run(command)
        except StaleRecordError:
            return [Accepted.STALE] * len(items)
        self._desk.faults.reach("router.after_accept")
        return outcomes

    def _report_ahead(
        self, tenant: str, items: Sequence[AcceptItem], outcomes: Sequence[Accepted]
    ) -> None:
        for item, outcome in zip(items, outcomes, strict=True):
            if outcome is Accepted.CLOCK:
                self._desk.ahead(tenant, item.entry_id)
                return

    def _refuse_late(
        self,
        tenant: str,
        items: Sequence[AcceptItem],
        outcomes: Sequence[Accepted],
        situation: Situation,
    ) -> set[bytes]:
        """Refuse what the server would not open, which is known only now; entries left for now."""
        late = [
            refuse(item.entry_id, self._envelope(item), _reason(outcome, situation))
            for item, outcome in zip(items, outcomes, strict=True)
            if outcome in _REFUSALS
        ]
        return _stale_among(late, self._accept(tenant, late, situation))

    def _envelope(self, item: AcceptItem) -> Envelope:
        return envelope_of(item.request_id, item.tenant, self._keys.model, item.fields)

    def _refuse_all(self, tenant: str, entries: Sequence[Entry], situation: Situation) -> bool:
        what, retry_after_ms = "the model is being redeployed", situation.retry_after_ms
        error = ErrorBody(ErrorKind.UNAVAILABLE, what, retry_after_ms=retry_after_ms)
        items = self._admit_all(tenant, entries, situation)
        refused = [refuse(item.entry_id, self._envelope(item), error) for item in items]
        return not _stale_among(refused, self._accept(tenant, refused, situation))


def _stale_among(items: Sequence[AcceptItem], outcomes: Sequence[Accepted]) -> set[bytes]:
    """Entries whose items were made by a deploy record that is another by now."""
    pairs = zip(items, outcomes, strict=True)
    return {item.entry_id for item, outcome in pairs if outcome is Accepted.STALE}


_INTERNAL = ErrorBody(ErrorKind.INTERNAL, "the router failed on this request", retry_after_ms=1000)
_TOO_LARGE = ErrorBody(ErrorKind.TOO_LARGE, f"the entry has more than {ENTRY_BYTES_MAX} bytes")
_REFUSALS = {
    Accepted.BUSY: (ErrorKind.BUSY, "the backlog is full"),
    Accepted.LATE: (ErrorKind.DEADLINE_EXCEEDED, "the deadline had passed before it was accepted"),
    Accepted.CLOCK: (ErrorKind.BAD_REQUEST, "the entry id is ahead of the server's clock"),
}


def _reason(outcome: Accepted, situation: Situation) -> ErrorBody:
    kind, message = _REFUSALS[outcome]
    return ErrorBody(
        kind, message, retry_after_ms=situation.retry_after_ms if kind.retryable else None
    )


class Pump:
    """Reads a group of ingress streams of one model until it is told to stop."""

    def __init__(
        self,
        reader: Executor,
        step: Admitter,
        keys: ModelKeys,
        router: str,
        tenants: Sequence[str],
    ) -> None:
        self._reader = reader
        self._step = step
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
            self._look_over()
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
            self._look_over()
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

    def _look_over(self) -> None:
        """Find the streams that can be read; one that cannot must not keep the others waiting.

        Raises:
            ServerError: none can.
        """
        streams = list(self._tenant_of)
        probes = [claiming.probe_ingress(stream, self._router) for stream in streams]
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
        news = requests.read_ingress(streams, self._router, wanted, BLOCK_MS)
        entries: list[tuple[str, list[Entry]]] = self._reader.run(news)
        count = _count(entries)
        if count == 1 and self._burst > _BURST_MIN:
            rest = requests.read_ingress(streams, self._router, wanted, 0)
            behind = self._reader.run(rest)
            entries += behind
            count = _count(entries)
        if count:
            self._burst += _BURST_SMOOTH * (count - self._burst)
            mean = sum(_size(some) for _, some in entries) / count
            self._entry_bytes = max(mean, (1 - _BURST_SMOOTH) * self._entry_bytes)
        return entries

    def _read_count(self) -> int:
        """How many entries to ask for, so that large ones do not fill the memory."""
        return max(_READ_COUNT_MIN, min(_READ_COUNT, int(_READ_BYTES / self._entry_bytes)))

    def _handle_pending(self, streams: Sequence[str]) -> None:
        for stream in streams:
            self._reader.run(claiming.probe_ingress(stream, self._router))
            after = "0"
            while pending := self._reader.run(
                claiming.reread_ingress(stream, self._router, after, _READ_COUNT)
            ):
                after = pending[-1].entry_id.decode()
                for is_too_large, some in groupby(pending, lambda entry: entry.is_too_large):
                    entries = [(entry.entry_id, entry.fields) for entry in some]
                    self._pass_on(stream, entries, is_too_large=is_too_large)

    def claim(self, idle_ms: int) -> int:
        """Take over what routers that are gone have left; accepting twice does no harm."""
        claimed = 0
        if len(self._usable) < len(self._tenant_of):
            self._look_over()
            self._unfinished = True
        for stream in self._usable:
            after: str | None = "0-0"
            taken = False
            while after is not None:
                command = claiming.claim_ingress(stream, self._router, idle_ms, _READ_COUNT, after)
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
            self._reader.run(fleet.prune_routers(self._keys, tenant, _FORGET_ROUTER_MS))

    def _handle(self, streams: list[tuple[str, list[Entry]]]) -> int:
        for stream, entries in streams:
            self._pass_on(stream, entries)
        return _count(streams)

    def _pass_on(
        self, stream: str, entries: Sequence[Entry], *, is_too_large: bool = False
    ) -> None:
        end = self._step.refuse_large if is_too_large else self._step.handle
        if not end(self._tenant_of[stream], entries):
            self._unfinished = True


def _count(streams: Sequence[tuple[str, Sequence[Entry]]]) -> int:
    return sum(len(entries) for _, entries in streams)


def _size(entries: Iterable[Entry]) -> int:
    return sum(map(len, chain.from_iterable(flat or () for _, flat in entries)))


def _cancelled(flat: Sequence[bytes] | None) -> str | None:
    """The id that an entry takes back, if it is such an entry."""
    return cancelled_id(flat) if flat is not None and b"cancel" in flat else None


def _cut(entries: Sequence[Entry]) -> Iterator[tuple[bool, Sequence[Entry]]]:
    """Cut entries into calls, in their order, and say which take requests back.

    At most 64 items and 4 MB an accept call; a larger entry goes alone. What takes back is kept
    apart, since it must neither overtake the request that it means nor meet a later one.
    """
    for takes_back, group in groupby(entries, lambda entry: _cancelled(entry[1]) is not None):
        alike = list(group)
        for at in range(0, len(alike), ACCEPT_ITEMS_MAX):
            some = alike[at : at + ACCEPT_ITEMS_MAX]
            is_small = takes_back or _size(some) <= _ACCEPT_BYTES
            yield from ((takes_back, part) for part in ([some] if is_small else _cut_by_size(some)))


def _cut_by_size(entries: Iterable[Entry]) -> list[list[Entry]]:
    calls: list[list[Entry]] = []
    size = 0
    for entry in entries:
        size += _size([entry])
        if not calls or size > _ACCEPT_BYTES:
            calls.append([])
            size = _size([entry])
        calls[-1].append(entry)
    return calls
