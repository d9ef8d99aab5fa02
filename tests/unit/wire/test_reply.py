import json

import msgpack
import pytest

from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.errors import CallerError, ErrorBody, ErrorKind, FleetError, ModelError
from batchfleet.wire.limits import RECEIPT_BYTES_MAX, WORKER_NAME_BYTES_MAX
from batchfleet.wire.reply import (
    Envelope,
    Receipt,
    Usage,
    decode_reply,
    encode_answer,
    encode_error,
)


def envelope(accept):
    return Envelope(id="a1", tenant="t", accept=accept, model="m", version="1")


def test_the_longest_receipt_fits():
    huge = 2**33
    receipt = Receipt(
        attempt=huge,
        queue_ms=3_599_999.999,
        preprocess_ms=599_999.999,
        predict_ms=3_599_999.999,
        postprocess_ms=599_999.999,
        bucket=10_000_000,
        batch="w" * WORKER_NAME_BYTES_MAX + ":" + "9" * 10,
        rows=4096,
        tokens=huge,
        padded_tokens=huge,
        release="padding",
        session="moved",
        lineage="0" * 16,
    )
    assert 280 < len(msgpack.packb(receipt.to_wire())) <= RECEIPT_BYTES_MAX


def test_times_have_three_decimals():
    wire = Receipt(queue_ms=1 / 3, preprocess_ms=2 / 3, predict_ms=1e-9, postprocess_ms=5).to_wire()
    assert [wire[f"{part}_ms"] for part in ("queue", "preprocess", "predict", "postprocess")] == [
        0.333,
        0.667,
        0,
        5,
    ]
    assert Usage(device_ms=1 / 3).to_wire()["device_ms"] == 0.333


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
def test_a_message_of_a_model_may_hold_anything(accept):
    raw = encode_error(envelope(accept), ErrorBody(ErrorKind.MODEL_ERROR, "a\ud800b\0c\nd\u00e9"))
    error = decode_reply(raw).to_error()
    assert error is not None
    assert error.message == "a\\ud800b\\x00c\nd\u00e9"


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
def test_an_error_in_2048_rows_stays_small(accept):
    body = ErrorBody(ErrorKind.BAD_INPUTS, "\U0001f600" * 10_000, rows=tuple(range(2048)))
    raw = encode_error(envelope(accept), body)
    assert len(raw) < 4096
    error = decode_reply(raw).to_error()
    assert error is not None
    assert error.rows == tuple(range(32))
    assert len(error.message) == 500


@pytest.mark.parametrize(
    ("code", "family", "kind"),
    [
        (101, CallerError, ErrorKind.BAD_INPUTS),
        (199, CallerError, ErrorKind.BAD_REQUEST),
        (299, FleetError, ErrorKind.INTERNAL),
        (399, ModelError, ErrorKind.MODEL_ERROR),
        (999, FleetError, ErrorKind.INTERNAL),
        (-1, FleetError, ErrorKind.INTERNAL),
    ],
)
def test_numbers_of_a_newer_contract_keep_their_source(code, family, kind):
    wire = {"id": "a", "tenant": "t", "status": "error", "error": {"code": code}}
    error = decode_reply(json.dumps(wire).encode()).to_error()
    assert type(error) is family
    assert error.kind is kind


def test_parts_that_are_absent_are_not_written():
    raw = encode_answer(envelope(JSON), b"[]", Usage(), Receipt())
    assert list(json.loads(raw)) == [
        "id", "tenant", "status", "model", "version", "usage", "receipt", "outputs",
    ]  # fmt: skip


WHOLE = {
    "id": "a1", "tenant": "t", "status": "error", "model": "m", "version": "1",
    "usage": {"rows": 1}, "receipt": {"attempt": 1, "queue_ms": 1.5, "session": None},
    "warnings": ["w"], "error": {"code": 300, "message": "x", "rows": [0], "retry_after_ms": 5},
}  # fmt: skip
ODD = (None, True, "x", b"x", [[]], {"a": 1}, [None])
# What is right for these.
RIGHT = {
    ("id",): str, ("tenant",): str, ("status",): str, ("model",): str, ("version",): str,
    ("meta",): str, ("trace_id",): str, ("outputs_at",): str, ("usage",): dict, ("receipt",): dict,
    ("warnings",): (), ("error",): (), ("usage", "tokens"): (), ("receipt", "queue_ms"): (),
    ("receipt", "attempt"): (), ("receipt", "batch"): str, ("error", "code"): (),
    ("error", "message"): str, ("error", "rows"): (), ("error", "retry_after_ms"): (),
}  # fmt: skip
MAY_BE_NIL = {("meta",), ("trace_id",), ("outputs_at",), ("error",), ("error", "retry_after_ms")}


@pytest.mark.parametrize("path", RIGHT, ids="/".join)
def test_what_is_read_of_a_reply_has_the_type_that_the_contract_says(path):
    """X8, X13: a tenant may write its own replies, and an operator reads them."""
    for odd in ODD:
        wire = {**WHOLE, path[0]: odd}
        if len(path) == 2:
            wire[path[0]] = {**WHOLE[path[0]], path[1]: odd}
        is_right = isinstance(odd, RIGHT[path]) or (odd is None and path in MAY_BE_NIL)
        if is_right:
            decode_reply(msgpack.packb(wire))
        else:
            with pytest.raises(ValueError, match=r"repl|error"):
                decode_reply(msgpack.packb(wire))
