"""What holds for every message and deploy record of the contract, whatever its bytes."""

import json
import unicodedata

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_values import (
    bodies,
    content_types,
    finite_ms,
    names,
    optional,
    texts,
)

from batchfleet.wire import limits
from batchfleet.wire.codec import JSON, encode_body, is_whole_reply
from batchfleet.wire.deployment import LIMIT_ROWS, Deployment, Limits, VersionRecord
from batchfleet.wire.errors import ErrorBody, ErrorKind, RequestError, SettingsError
from batchfleet.wire.keys import PRIORITIES
from batchfleet.wire.names import is_name, is_name_bytes
from batchfleet.wire.reply import (
    Envelope,
    Receipt,
    Usage,
    decode_reply,
    encode_answer,
    encode_error,
    status_of,
)
from batchfleet.wire.request import FIELDS, RESERVED, Request, find_id, parse_request
from batchfleet.wire.signature import Signature, TensorSpec
from batchfleet.wire.work import parse_work, work_fields

# Request entries and work entries.

places = st.one_of(
    st.fixed_dictionaries({"inputs": st.binary(min_size=1, max_size=50)}),
    st.fixed_dictionaries(
        {
            "inputs": st.just(b""),
            "inputs_at": st.sampled_from(["blob", "https://data.example/1", "s3://b/k"]),
        },
        optional={"inputs_bytes": st.integers(1, 100)},
    ),
)
requests_here = st.builds(
    Request,
    id=names,
    content_type=content_types,
    accept=optional(content_types),
    version=optional(names),
    outputs=optional(st.lists(names, min_size=1, max_size=3).map(",".join)),
    parameters=optional(st.binary(max_size=50)),
    priority=st.sampled_from(PRIORITIES),
    timeout_ms=optional(st.integers(1, limits.TIMEOUT_MS_MAX)),
    result_ttl_ms=optional(st.integers(1000, limits.RESULT_TTL_MS_MAX)),
    length=optional(st.integers(1, 10_000_000)),
    rows=optional(st.integers(1, 10_000_000)),
    truncate=optional(st.sampled_from(["end", "refuse"])),
    meta=optional(texts),
    traceparent=optional(st.just("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")),
    warnings=st.just(()),  # a caller sends none; reading adds them
    inputs_at=st.none(),
    inputs_bytes=st.none(),
    delay_ms=optional(st.integers(0, limits.DELAY_MS_MAX)),
    retries=optional(st.integers(0, limits.RETRIES_MAX)),
)
requests = st.builds(lambda request, place: request._replace(**place), requests_here, places)


@given(requests)
def test_a_request_is_read_as_it_was_written(request):
    assert parse_request(request.to_fields(), 100) == request


@given(requests, names, st.integers(0, 10**15 - 1))
def test_a_work_entry_holds_what_the_request_said(request, tenant, deadline):
    place = (b"inputs", request.inputs)
    if request.inputs_at is not None:
        place = (b"inputs_at", request.inputs_at.encode())
    flat = [*work_fields(request, tenant), b"deadline", b"%d" % deadline, *place]
    assert flat[:4] == [b"id", request.id.encode(), b"tenant", tenant.encode()]
    entry = parse_work("stream", b"17-0", flat)
    assert (entry.tenant, entry.deadline_ms, entry.accepted_ms) == (tenant, deadline, 17)
    assert entry.accept == (request.accept or request.content_type)
    assert entry.rows == (request.rows or 1)
    assert entry.retries == (request.retries or 0)
    carried = {field.name for field in FIELDS.values() if field.is_carried}
    others = {"id", "inputs", "inputs_at", "content_type", "warnings"}
    for name in others | carried - {"accept", "rows", "retries"}:
        assert getattr(entry, name) == getattr(request, name), name


field_names = st.one_of(
    st.sampled_from([name.encode() for name in (*FIELDS, *RESERVED)]), st.binary(max_size=12)
)
field_values = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"1", b"a", b"high", JSON.encode(), b"1500"])
)
entries = st.lists(st.tuples(field_names, field_values), max_size=70)


def assert_refusal(error):
    assert error.name in {"bad_request", "unsupported_content_type", "too_large"}
    assert error.message.isprintable()


@given(entries)
@settings(max_examples=300)
def test_any_entry_is_read_or_refused(pairs):
    flat = [part for pair in pairs for part in pair]
    ids = [value for name, value in pairs if name == b"id"]
    answerable = find_id(flat)
    assert (answerable is not None) == (len(ids) == 1 and is_name_bytes(ids[0]))
    try:
        request = parse_request(flat, 1000)
    except RequestError as refused:
        assert_refusal(refused)
        return
    assert request.id == answerable
    assert len(request.warnings) <= limits.WARNINGS_MAX
    assert parse_work("s", b"1-0", [*work_fields(request, "t"), b"inputs", b"x", b"deadline", b"1"])


@given(st.text(max_size=20))
def test_both_readings_of_a_name_agree(text):
    assert is_name(text) == is_name_bytes(text.encode(errors="surrogatepass"))


# Replies.

envelopes = st.builds(
    Envelope,
    id=names,
    tenant=names,
    accept=content_types,
    model=names,
    version=names,
    meta=optional(texts),
    traceparent=optional(st.just("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")),
    warnings=st.lists(texts, max_size=3).map(tuple),
)
usages = st.builds(
    Usage,
    rows=st.integers(0, 2048),
    tokens=st.integers(0, 2**40),
    truncated_tokens=st.integers(0, 2**40),
    device_ms=finite_ms,
)
counts = st.integers(0, 2**40)
receipts = st.builds(
    Receipt,
    attempt=st.integers(1, 100),
    queue_ms=finite_ms,
    preprocess_ms=finite_ms,
    predict_ms=finite_ms,
    postprocess_ms=finite_ms,
    bucket=st.integers(0, 10_000_000),
    batch=st.builds(
        "{}:{}".format,
        names.map(lambda name: name[: limits.WORKER_NAME_BYTES_MAX]),
        st.integers(0, 10**12),
    ),
    rows=st.integers(0, 4096),
    tokens=counts,
    padded_tokens=counts,
    release=st.sampled_from(["idle", "full", "tokens", "padding", "time", "knee", "linger"]),
    session=optional(st.sampled_from(["kept", "moved", "cold"])),
    lineage=st.just("9c41d0e2b7a65f38"),
)


def assert_head(reply, envelope):
    assert (reply.id, reply.tenant) == (envelope.id, envelope.tenant)
    assert (reply.model, reply.version) == (envelope.model, envelope.version)
    assert (reply.meta, reply.warnings) == (envelope.meta, envelope.warnings)
    assert reply.trace_id == (envelope.traceparent and envelope.traceparent.split("-")[1])


@given(envelopes, bodies, usages, receipts)
def test_an_answer_is_read_as_it_was_written(envelope, outputs, usage, receipt):
    encoded = encode_body(outputs, envelope.accept)
    raw = encode_answer(envelope, encoded, usage, receipt)
    assert is_whole_reply(raw)
    reply = decode_reply(raw)
    assert_head(reply, envelope)
    assert reply.status == "ok"
    assert reply.to_error() is None
    assert encode_body(reply.outputs, envelope.accept) == encoded
    assert (reply.usage, reply.receipt) == (usage.to_wire(), receipt.to_wire())


hostile_texts = st.text(max_size=700)  # lone surrogates and NUL included


def readable(text):
    """A text whose control characters and lone surrogates are written as escapes."""
    return "".join(
        c.encode("unicode_escape").decode()
        if c not in "\t\n" and unicodedata.category(c) in ("Cc", "Cs")
        else c
        for c in text[:500]
    )


@given(
    envelopes,
    st.sampled_from(ErrorKind),
    hostile_texts,
    st.lists(st.integers(0, 2047), max_size=40).map(tuple),
    optional(st.integers(0, 10**9)),
    optional(receipts),
)
def test_an_error_is_read_as_it_was_written(envelope, kind, message, rows, retry_after_ms, receipt):
    raw = encode_error(envelope, ErrorBody(kind, message, rows, retry_after_ms), receipt)
    reply = decode_reply(raw)
    assert_head(reply, envelope)
    assert reply.status == status_of(kind).value
    error = reply.to_error()
    assert error is not None
    assert error.kind is kind
    assert error.message == readable(message)[:500]
    assert error.rows == rows[: limits.ERROR_ROWS_MAX]
    assert error.retry_after_ms == retry_after_ms
    assert (reply.receipt == receipt.to_wire()) if receipt else not reply.receipt


@given(receipts)
def test_a_receipt_is_small(receipt):
    assert len(msgpack.packb(receipt.to_wire())) <= limits.RECEIPT_BYTES_MAX


@given(st.one_of(st.binary(max_size=60), bodies.map(msgpack.packb)))
def test_any_bytes_are_a_reply_or_a_value_error(raw):
    try:
        reply = decode_reply(raw)
    except ValueError:
        return
    assert reply.status
    reply.to_error()


# The deploy record.

limit_values = {
    name: st.integers(int(row.lowest), int(row.highest)) for name, row in LIMIT_ROWS.items()
}


@given(st.fixed_dictionaries({}, optional=limit_values))
def test_a_record_is_read_as_it_was_written(values):
    signature = Signature(inputs=(TensorSpec(name="x", datatype="FP32", highest=9.0),))
    limits_in_force = Limits(**values)
    record = VersionRecord(version="1", limits=limits_in_force, signature=signature)
    raw = {"stable": b"1", "version:1": record.to_wire(), "epoch": b"3", "nonce": b"n"}
    found = Deployment.from_hash("m", raw)
    assert found is not None
    assert found.versions == {"1": record}


hash_names = st.sampled_from(
    ["stable", "epoch", "nonce", "intake", "version:1", "version:..", "set:backlog", "set:novel"]
)
record_like = st.fixed_dictionaries(
    {"version": st.just("1")},
    optional={
        "limits": bodies,
        "signature": st.one_of(
            bodies,
            st.fixed_dictionaries(
                {"inputs": st.lists(st.fixed_dictionaries({}, optional={
                    "name": bodies, "datatype": bodies, "shape": bodies, "range": bodies
                }), max_size=2)}
            ),
        ),
        "bytes_per_token": bodies,
        "runtime": bodies,
        "novel": bodies,
    },
)  # fmt: skip
hash_values = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"1", b"open", b"{}", b"[]", b"null", b"1e999"]),
    bodies.map(lambda body: json.dumps(body).encode()),
    record_like.map(lambda body: json.dumps(body).encode()),
)


@given(st.dictionaries(hash_names, hash_values, max_size=6), record_like)
@settings(max_examples=300)
def test_any_hash_is_a_deployment_or_a_settings_error(raw, record):
    for candidate in (raw, {"stable": b"1", "version:1": json.dumps(record).encode(), **raw}):
        try:
            found = Deployment.from_hash("m", candidate)
        except SettingsError:
            continue
        if found is None:
            assert "stable" not in candidate
        else:
            version = found.versions[found.stable]
            assert version.bucket_of(version.length_of(100, 1)) in version.limits.buckets
