"""Admission of what a pump has read: one accept call a batch, which opens or refuses requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

from ..broker import ingress, requests
from ..broker.ending import CANCELLED, bare_envelopes, end_requests
from ..broker.errors import StaleRecordError
from ..broker.interface import Executor
from ..broker.requests import Accepted, AcceptItem, Entry
from ..wire.errors import ErrorBody, ErrorKind, ServerError, SettingsError
from ..wire.keys import ModelKeys
from ..wire.limits import ACCEPT_ITEMS_MAX, ENTRY_BYTES_MAX
from ..wire.reply import Envelope
from ..wire.request import cancelled_id, find_id
from .admission import Situation, admit, envelope_of, refuse
from .shared import SharedState
from .view import read_model

_ACCEPT_BYTES = 4 * 1024 * 1024
_STALE_TRIES = 3
_INTERNAL = ErrorBody(ErrorKind.INTERNAL, "the router failed on this request", retry_after_ms=1000)
_TOO_LARGE = ErrorBody(ErrorKind.TOO_LARGE, f"the entry has more than {ENTRY_BYTES_MAX} bytes")
_REFUSALS = {
    Accepted.BUSY: (ErrorKind.BUSY, "the backlog is full"),
    Accepted.LATE: (ErrorKind.DEADLINE_EXCEEDED, "the deadline had passed before it was accepted"),
    Accepted.CLOCK: (ErrorKind.BAD_REQUEST, "the entry id is ahead of the server's clock"),
}


class Admitter:
    """Accepts, refuses, cancels or drops what one pump thread has read.

    Args:
        executor: a command connection of that thread's own.
        keys: those of its model.
        shared: where the keeper puts what it knows of the model.
    """

    def __init__(self, executor: Executor, keys: ModelKeys, shared: SharedState) -> None:
        self._executor = executor
        self._keys = keys
        self._shared = shared
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
            for is_cancel, call in _split_calls(entries):
                self._shared.faults.reach("router.after_read")
                handle = self._cancel if is_cancel else self._admit
                if not handle(tenant, call):
                    return False  # and what comes after would not be either
                done += len(call)
        except ServerError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, which concerns one entry
            return self._handle_apart(tenant, entries[done:], error)
        return True

    def _handle_apart(self, tenant: str, entries: Sequence[Entry], error: Exception) -> bool:
        """One of these entries, the first of them if it is alone, has made us fail.

        Those that were finished before are not accepted again: `accept` is idempotent.
        """
        if len(entries) > 1:
            return all(self.handle(tenant, [entry]) for entry in entries)
        self._shared.report_failed(self._keys.model, error)
        return all(self._end(tenant, entry_id, flat or (), _INTERNAL) for entry_id, flat in entries)

    def _end(
        self, tenant: str, entry_id: bytes, flat: Sequence[bytes], error: ErrorBody, kind: str = ""
    ) -> bool:
        """Refuse an entry by as little code as possible; drop one without an id, as `kind`."""
        situation = self._situation()
        if situation is None:
            return False
        request_id = None if b"cancel" in flat else find_id(flat)
        if request_id is None:
            self._drop(tenant, [entry_id])
            if kind:
                self._shared.report_dropped(kind, 1)
            return True
        (envelope,) = bare_envelopes(self._keys.model, [(tenant, request_id)])
        if kind:  # nothing is wrong with us
            envelope = envelope_of(request_id, tenant, self._keys.model, flat)
        item = refuse(entry_id, envelope, error)
        stream, stamp = self._keys.ingress(tenant), situation.model.deployment.stamp
        try:
            self._executor.run(requests.accept(self._keys, stream, stamp, 0, [item]))
        except StaleRecordError:
            self._shared.look_soon.set()  # the next pass finds it pending
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
        situation = self._situation()
        if situation is None:
            return False
        envelopes = [
            envelope_of(request_id, tenant, self._keys.model, flat or ())
            for _, flat in entries
            if (request_id := _cancelled(flat))
        ]
        deployment = situation.model.deployment
        end_requests(self._executor, self._keys, deployment, envelopes, CANCELLED)
        self._drop(tenant, [entry_id for entry_id, _ in entries])
        return True

    def _admit(self, tenant: str, entries: Sequence[Entry]) -> bool:
        situation = self._situation()
        for _ in range(_STALE_TRIES):
            if situation is None:
                return False
            items = self._make_items(tenant, entries, situation)
            outcomes = self._accept(tenant, items, situation)
            opened = outcomes.count(Accepted.OK)
            self.opened += opened
            if opened == len(items):
                return True
            stale = _stale_among(items, outcomes)
            stale |= self._refuse_late(tenant, items, outcomes, situation)
            if not stale:
                return True
            entries = [entry for entry in entries if entry[0] in stale]
            situation = self._reread()
        return situation is not None and self._refuse_all(tenant, entries, situation)

    def _make_items(
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
            self._drop(tenant, nameless)
            for kind, count in kinds.items():
                self._shared.report_dropped(kind, count)
        return items

    def _accept(self, tenant: str, items: list[AcceptItem], situation: Situation) -> list[Accepted]:
        if not items:
            return []
        stream, record = self._keys.ingress(tenant), situation.model.deployment
        self._shared.faults.reach("router.before_accept")
        backlog = record.limits.backlog
        command = requests.accept(self._keys, stream, record.stamp, backlog, items)
        try:
            _, outcomes = self._executor.run(command)
        except StaleRecordError:
            return [Accepted.STALE] * len(items)
        self._shared.faults.reach("router.after_accept")
        return outcomes

    def _refuse_late(
        self,
        tenant: str,
        items: Sequence[AcceptItem],
        outcomes: Sequence[Accepted],
        situation: Situation,
    ) -> set[bytes]:
        """Refuse what the server would not open, which is known only now; entries left for now."""
        late: list[AcceptItem] = []
        for item, outcome in zip(items, outcomes, strict=True):
            if outcome is Accepted.CLOCK:
                self._shared.report_ahead(self._keys.model, tenant, item.entry_id)
            if outcome in _REFUSALS:
                error = _reason(outcome, situation)
                late.append(refuse(item.entry_id, self._envelope(item), error))
        return _stale_among(late, self._accept(tenant, late, situation))

    def _envelope(self, item: AcceptItem) -> Envelope:
        return envelope_of(item.request_id, item.tenant, self._keys.model, item.fields)

    def _situation(self) -> Situation | None:
        return self._shared.situations.get(self._keys.model)

    def _reread(self) -> Situation | None:
        """The situation by the model's record as it is now; the keeper is to look as well."""
        self._shared.look_soon.set()
        situation = self._situation()
        if situation is None:
            return None
        try:
            model = read_model(self._executor, self._keys, situation.model).model
        except SettingsError:
            return situation  # the keeper reports it, and ends this pump
        return None if model is None else replace(situation, model=model)

    def _drop(self, tenant: str, entry_ids: Sequence[bytes]) -> None:
        stream = self._keys.ingress(tenant)
        self._executor.run_all(ingress.drop(stream, entry_ids))

    def _refuse_all(self, tenant: str, entries: Sequence[Entry], situation: Situation) -> bool:
        what, retry_after_ms = "the model is being redeployed", situation.retry_after_ms
        error = ErrorBody(ErrorKind.UNAVAILABLE, what, retry_after_ms=retry_after_ms)
        items = self._make_items(tenant, entries, situation)
        refused = [refuse(item.entry_id, self._envelope(item), error) for item in items]
        return not _stale_among(refused, self._accept(tenant, refused, situation))


def _stale_among(items: Sequence[AcceptItem], outcomes: Sequence[Accepted]) -> set[bytes]:
    """Entries whose items were made by a deploy record that is another by now."""
    pairs = zip(items, outcomes, strict=True)
    return {item.entry_id for item, outcome in pairs if outcome is Accepted.STALE}


def _reason(outcome: Accepted, situation: Situation) -> ErrorBody:
    kind, message = _REFUSALS[outcome]
    return ErrorBody(
        kind, message, retry_after_ms=situation.retry_after_ms if kind.retryable else None
    )


def bytes_of(entries: Iterable[Entry]) -> int:
    """What entries hold, names of fields included."""
    return sum(map(len, chain.from_iterable(flat or () for _, flat in entries)))


def _cancelled(flat: Sequence[bytes] | None) -> str | None:
    """The id that an entry cancels, if it is such an entry."""
    return cancelled_id(flat) if flat is not None and b"cancel" in flat else None


def _split_calls(entries: Sequence[Entry]) -> Iterator[tuple[bool, Sequence[Entry]]]:
    """Split entries into calls, in their order, and say which of them cancel.

    At most 64 items and 4 MB an accept call; a larger entry goes alone. Cancels are kept apart:
    they must neither overtake the request that they mean nor meet a later one.
    """
    for is_cancel, group in groupby(entries, lambda entry: _cancelled(entry[1]) is not None):
        call: list[Entry] = []
        size = 0
        for entry in group:
            entry_bytes = 0 if is_cancel else sum(map(len, entry[1] or ()))
            if call and (len(call) == ACCEPT_ITEMS_MAX or size + entry_bytes > _ACCEPT_BYTES):
                yield is_cancel, call
                call, size = [], 0
            call.append(entry)
            size += entry_bytes
        yield is_cancel, call
