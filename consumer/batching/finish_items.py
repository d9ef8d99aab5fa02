"""From a request that is over to the item that settles it. Pure.

This is done for every request, so what is built here is built by place and looked up once.
"""

import orjson

from ...broker.requests import FinishItem
from ...wire.errors import ErrorBody, ErrorKind, kind_of
from ...wire.keys import ModelKeys
from ...wire.limits import INLINE_BYTES_DEFAULT, RESEND_WINDOW_MS
from ...wire.references import BLOB
from ...wire.reply import (
    Envelope,
    Receipt,
    Usage,
    encode_answer,
    encode_answer_at,
    encode_error,
    status_of,
)
from ...wire.states import State
from ...wire.stats import counts_of
from .retrying import final_kind, is_dead_letter
from .state import EndedRequest, HeldRequest

# One in so many answers leaves a line in the journal; errors always do.
_JOURNAL_EVERY = 100
_OK = State.OK.value


def finish_item(
    ended: EndedRequest, keys: ModelKeys, worker: str, now_ms: float, offset_ms: float
) -> FinishItem:
    """The item for `finish`. `offset_ms` is server time minus monotonic time, which is `now_ms`."""
    held, answer, _ = ended
    entry, limits = held.entry, held.lane.record.limits
    receipt = _receipt(ended, worker, offset_ms)
    outputs, error_kind = b"", None
    is_dead = False
    if answer is not None:
        status = _OK
        reply, outputs = _answer(held, answer.outputs, keys, receipt)
    else:
        error = _error_body(ended)
        error_kind = error.kind
        is_dead = is_dead_letter(error.kind)
        status = status_of(error.kind).value
        reply = encode_error(_envelope(held), error, receipt)
    sampled = answer is None or held.number % _JOURNAL_EVERY == 0
    result_ttl_ms = entry.result_ttl_ms or limits.result_ttl_ms
    timeout_ms = entry.timeout_ms or limits.timeout_ms
    return FinishItem(
        entry.stream,
        entry.entry_id,
        entry.tenant,
        entry.id,
        reply,
        status,
        result_ttl_ms,
        result_ttl_ms + timeout_ms + RESEND_WINDOW_MS,
        _journal_line(ended, status, receipt) if sampled else b"",
        outputs,
        entry.inputs_at == BLOB,
        is_dead,
        counts_of(
            held.lane.version,
            error_kind,
            latency_ms=now_ms + offset_ms - entry.accepted_ms,
            rows=held.rows,
            device_us=int(held.device_ms * 1000),
        ),
    )


def _answer(
    held: HeldRequest, outputs: bytes, keys: ModelKeys, receipt: Receipt
) -> tuple[bytes, bytes]:
    """The reply, and the outputs that go under a key of their own where they are too large."""
    envelope, usage = _envelope(held), _usage(held)
    if len(outputs) <= INLINE_BYTES_DEFAULT:
        return encode_answer(envelope, outputs, usage, receipt), b""
    key = keys.outputs_blob(held.entry.tenant, held.entry.id)
    return encode_answer_at(envelope, key, usage, receipt), outputs


def _error_body(ended: EndedRequest) -> ErrorBody:
    failure = ended.failure
    assert failure is not None
    kind, message = final_kind(ended), failure.message
    if kind is ErrorKind.ATTEMPTS_EXHAUSTED:
        last = kind_of(failure.code).label
        message = f"{ended.held.entry.attempt} attempts failed; the last, {last}: {message}"
    return ErrorBody(kind, message, tuple(failure.rows))


def _envelope(held: HeldRequest) -> Envelope:
    entry, lane = held.entry, held.lane
    warnings = entry.warnings
    if held.truncated_tokens:
        warnings = (*warnings, f"{held.truncated_tokens} tokens were cut off")
    return Envelope(
        entry.id,
        entry.tenant,
        entry.accept,
        lane.model,
        lane.record.version,
        entry.meta,
        entry.traceparent,
        warnings,
    )


def _usage(held: HeldRequest) -> Usage:
    return Usage(held.rows, sum(held.lengths), held.truncated_tokens, held.device_ms)


def _receipt(ended: EndedRequest, worker: str, offset_ms: float) -> Receipt:
    held, answer, _ = ended
    queue_ms = (held.started_ms or held.taken_ms) + offset_ms - held.entry.accepted_ms
    return Receipt(
        held.attempt,
        max(0.0, queue_ms),
        held.preprocess_ms,
        held.predict_ms,
        0.0 if answer is None else answer.postprocess_ms,
        held.placement.bucket,
        f"{worker}:{held.batch}" if held.batch else worker,
        held.batch_rows,
        sum(held.lengths),
        held.padded_tokens,
        held.release,
        None,  # session
        held.lane.lineage,
    )


def _journal_line(ended: EndedRequest, status: str, receipt: Receipt) -> bytes:
    held = ended.held
    line = {
        "id": held.entry.id,
        "tenant": held.entry.tenant,
        "status": status,
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
