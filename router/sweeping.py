"""Sweeping: answers for requests that no worker will answer. Any router does it; none needs a lock.

The gate inside `finish` makes it safe for all routers to sweep at once.
"""

from collections.abc import Iterator

from ..broker import fleet, requests
from ..broker.interface import Executor
from ..broker.requests import Finished, FinishItem
from ..wire.codec import JSON
from ..wire.deployment import Limits
from ..wire.errors import ErrorBody, ErrorKind
from ..wire.keys import ModelKeys
from ..wire.limits import FINISH_ITEMS_MAX, RESEND_WINDOW_MS
from ..wire.reply import Envelope, encode_error, status_of
from .admission import envelope_of
from .view import ModelView

_START = "-"


def sweep_overdue(executor: Executor, view: ModelView) -> int:
    """Answer the requests of a model that are past their deadline; returns how many."""
    keys, limits = view.keys, view.deployment.limits
    error = ErrorBody(ErrorKind.DEADLINE_EXCEEDED, "the deadline passed before an answer was ready")
    answered = 0
    while True:
        overdue = executor.run(requests.overdue(keys, FINISH_ITEMS_MAX))
        items = [
            _ended(
                Envelope(id=request_id, tenant=tenant, accept=JSON, model=keys.model), error, limits
            )
            for tenant, request_id in overdue
        ]
        answered += _finish(executor, keys, items)
        if len(overdue) < FINISH_ITEMS_MAX:
            return answered


def answer_abandoned(executor: Executor, view: ModelView, version: str) -> int:
    """Answer `no_worker` to what waits for a version that nobody serves; returns how many."""
    keys, limits = view.keys, view.deployment.limits
    error = ErrorBody(
        ErrorKind.NO_WORKER, f"no live worker serves {keys.model}/{version}", retry_after_ms=1000
    )
    record = view.deployment.versions[version]
    answered = 0
    for stream in fleet.queue_streams(keys, record):
        for entries in _pages(executor, stream):
            items = [
                _ended(
                    envelope_of(fields[1].decode(), fields[3].decode(), keys.model, fields),
                    error,
                    limits,
                )
                for _, fields in entries
                if fields is not None and fields[0] == b"id" and fields[2] == b"tenant"
            ]
            answered += _finish(executor, keys, items)
    return answered


def remove_buckets(executor: Executor, view: ModelView) -> int:
    """Remove the streams of buckets that have drained; returns of how many."""
    commands = [
        fleet.remove_bucket(view.keys, record.version, edge)
        for record in view.deployment.versions.values()
        for edge in record.draining
    ]
    return sum(executor.run(command) for command in commands)


def _pages(executor: Executor, stream: str) -> Iterator[list[requests.Entry]]:
    start = _START
    while True:
        entries = executor.run(requests.waiting(stream, start, FINISH_ITEMS_MAX))
        if entries:
            yield entries
        if len(entries) < FINISH_ITEMS_MAX:
            return
        start = "(" + entries[-1][0].decode()


def _ended(envelope: Envelope, error: ErrorBody, limits: Limits) -> FinishItem:
    return FinishItem(
        stream="",
        entry_id=b"",
        tenant=envelope.tenant,
        request_id=envelope.id,
        reply=encode_error(envelope, error),
        status=status_of(error.kind).value,
        result_ttl_ms=limits.result_ttl_ms,
        tombstone_ttl_ms=limits.result_ttl_ms + limits.timeout_ms + RESEND_WINDOW_MS,
        has_blob=True,  # perhaps: it is removed unseen
    )


def _finish(executor: Executor, keys: ModelKeys, items: list[FinishItem]) -> int:
    outcomes = [
        outcome
        for some in requests.split_finish(items)
        for outcome in executor.run(requests.finish(keys, "", some))
    ]
    return outcomes.count(Finished.ANSWERED)
