"""From a request that is over to the item that settles it. Pure."""

import orjson

from ..broker.requests import FinishItem
from ..wire.errors import ErrorBody, kind_of
from ..wire.limits import RESEND_WINDOW_MS
from ..wire.reply import Envelope, Receipt, Usage, encode_answer, encode_error, status_of
from ..wire.states import State
from .held import Ended, Held

# One in so many answers leaves a line in the journal; errors always do.
_JOURNAL_EVERY = 100


def finish_item(ended: Ended, worker: str, offset_ms: float) -> FinishItem:
    """The item for `finish`. `offset_ms` is server time minus monotonic time."""
    held = ended.held
    entry, limits = held.entry, held.lane.record.limits
    receipt = _receipt(ended, worker, offset_ms)
    if ended.answer is not None:
        status = State.OK
        reply = encode_answer(_envelope(held), ended.answer.outputs, _usage(held), receipt)
    else:
        error = _error_body(ended)
        status = status_of(error.kind)
        reply = encode_error(_envelope(held), error, receipt)
    result_ttl_ms = entry.result_ttl_ms or limits.result_ttl_ms
    timeout_ms = entry.timeout_ms or limits.timeout_ms
    sampled = status is not State.OK or held.number % _JOURNAL_EVERY == 0
    return FinishItem(
        stream=entry.stream,
        entry_id=entry.entry_id,
        tenant=entry.tenant,
        request_id=entry.id,
        reply=reply,
        status=status.value,
        result_ttl_ms=result_ttl_ms,
        tombstone_ttl_ms=result_ttl_ms + timeout_ms + RESEND_WINDOW_MS,
        journal=_journal_line(ended, status, receipt) if sampled else b"",
    )


def _error_body(ended: Ended) -> ErrorBody:
    failure = ended.failure
    assert failure is not None
    return ErrorBody(kind_of(failure.code), failure.message, tuple(failure.rows))


def _envelope(held: Held) -> Envelope:
    entry = held.entry
    warnings = entry.warnings
    if held.truncated_tokens:
        warnings = (*warnings, f"{held.truncated_tokens} tokens were cut off")
    return Envelope(
        id=entry.id,
        tenant=entry.tenant,
        accept=entry.accept,
        model=held.lane.model,
        version=held.lane.version,
        meta=entry.meta,
        traceparent=entry.traceparent,
        warnings=warnings,
    )


def _usage(held: Held) -> Usage:
    return Usage(
        rows=held.rows,
        tokens=sum(held.lengths),
        truncated_tokens=held.truncated_tokens,
        device_ms=held.device_ms,
    )


def _receipt(ended: Ended, worker: str, offset_ms: float) -> Receipt:
    held = ended.held
    started_ms = held.started_ms or held.taken_ms
    queue_ms = started_ms + offset_ms - held.entry.accepted_ms
    return Receipt(
        attempt=held.attempt,
        queue_ms=max(0.0, queue_ms),
        preprocess_ms=held.preprocess_ms,
        predict_ms=held.predict_ms,
        postprocess_ms=ended.answer.postprocess_ms if ended.answer else 0.0,
        bucket=held.placement.bucket,
        batch=f"{worker}:{held.batch}" if held.batch else worker,
        rows=held.batch_rows,
        tokens=sum(held.lengths),
        padded_tokens=held.padded_tokens,
        release=held.release,
        lineage=held.lane.lineage,
    )


def _journal_line(ended: Ended, status: State, receipt: Receipt) -> bytes:
    held = ended.held
    line = {
        "id": held.entry.id,
        "tenant": held.entry.tenant,
        "status": status.value,
        "version": held.lane.version,
        "batch": receipt.batch,
        "attempt": receipt.attempt,
        "queue_ms": receipt.queue_ms,
        "predict_ms": receipt.predict_ms,
        "tokens": receipt.tokens,
    }
    if ended.failure is not None:
        line["error"] = ended.failure.code
    return orjson.dumps(line)
