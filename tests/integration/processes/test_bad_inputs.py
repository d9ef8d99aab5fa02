"""Bad input gets a clear error reply, and nothing is lost: raw entries, real processes."""

import json
import secrets

import msgpack
import pytest
from support.bad_inputs import BODIES, HEADERS, NAMELESS, TENSOR_CASES, body, tensor
from support.fleet import draft_of, limits, shared_fleet, until

from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.limits import ROWS_MAX
from batchfleet.wire.reply import decode_reply
from batchfleet.wire.signature import Signature, TensorSpec

MAX_LENGTH = 10
BYTES_MAX = 100_000

TENSORS = (
    TensorSpec(name="x", datatype="FP32", shape=(-1, 2), lowest=-1, highest=1),
    TensorSpec(name="n", datatype="INT64", shape=(-1,)),
)


def echo_outputs():
    return draft_of("echo", "any").signature.outputs


def checked_draft():
    signature = Signature(inputs=TENSORS, outputs=echo_outputs())
    return draft_of("echo", "checked", signature=signature)


def text_draft(model, truncate):
    signature = Signature(
        inputs=(TensorSpec(name="text", datatype="BYTES"),), outputs=echo_outputs()
    )
    return draft_of(
        "echo",
        model,
        limits=limits(max_length=MAX_LENGTH, max_request_bytes=BYTES_MAX, truncate=truncate),
        parameters={"characters_per_token": 4, "faults": False},
        signature=signature,
    )


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    """One router and one worker for the whole module: whatever it sends, neither may die."""
    texts = (text_draft("text", "refuse"), text_draft("cutting", "end"))
    drafts = (draft_of("echo", "echo"), checked_draft(), *texts)
    with shared_fleet(redis_server, tmp_path_factory.mktemp("fleet"), *drafts) as found:
        found.first_device_pid = found.workers[0].device_pid()
        yield found


@pytest.fixture(autouse=True)
def everybody_lives(fleet):
    """After each case: nothing is left over, the same processes run, and they answer."""
    yield
    for model in ("echo", "checked", "text", "cutting"):
        fleet.wait_idle(model)
    assert all(program.is_running() for program in fleet.programs)
    assert fleet.workers[0].device_pid() == fleet.first_device_pid
    assert fleet.ask("echo", "still here?").status == "ok"


def send(fleet, model, pairs):
    """Add an entry as it is: pairs may repeat a field."""
    flat = [part for pair in pairs for part in pair]
    stream = fleet.keys(model).ingress("default")
    return fleet.server.execute_command("XADD", stream, "NOMKSTREAM", "*", *flat)


def check_error(reply, kind, *needles):
    """An error reply is complete, and says what is wrong."""
    assert reply.error is not None, f"{reply.status}: {reply.outputs}"
    assert reply.error["name"] == kind.label
    assert reply.error["code"] == kind.code
    assert reply.error["source"] == kind.source.value
    assert reply.error["retryable"] == kind.retryable
    for needle in needles:
        assert needle in reply.error["message"]


# Headers: the router answers.


@pytest.mark.parametrize("case", HEADERS)
def test_a_bad_header_is_refused_by_the_router(fleet, case):
    fields, kind, needle = HEADERS[case]
    reply = fleet.ask("echo", **fields)
    check_error(reply, kind, needle)
    assert reply.receipt == {}


def test_a_body_over_the_limit_is_too_large(fleet):
    reply = fleet.ask("text", "x" * (BYTES_MAX + 1))
    check_error(reply, ErrorKind.TOO_LARGE, str(BYTES_MAX))


def test_ten_thousand_fields_are_refused(fleet):
    """T7: the number of fields is bounded, and told."""
    request_id = secrets.token_hex(8)
    pairs = [("id", request_id), ("inputs", "{}"), *((f"f{at}", "x") for at in range(10_000))]
    send(fleet, "echo", pairs)
    check_error(fleet.reply("echo", request_id), ErrorKind.BAD_REQUEST, "fields")


def test_a_field_given_twice_is_refused(fleet):
    request_id = secrets.token_hex(8)
    send(fleet, "echo", [("id", request_id), ("inputs", "{}"), ("inputs", "[]")])
    check_error(fleet.reply("echo", request_id), ErrorKind.BAD_REQUEST, "inputs", "twice")


def test_inputs_that_are_missing_are_refused(fleet):
    request_id = secrets.token_hex(8)
    send(fleet, "echo", [("id", request_id)])
    check_error(fleet.reply("echo", request_id), ErrorKind.BAD_REQUEST, "inputs")


def test_a_refusal_comes_in_the_encoding_that_was_asked_for(fleet):
    request_id = fleet.submit("echo", accept=MSGPACK, version="99")
    raw = fleet.raw_reply("echo", request_id)
    assert msgpack.unpackb(raw)["error"]["name"] == "unknown_version"


def test_an_unknown_field_is_told_with_the_nearest_name(fleet):
    reply = fleet.ask("echo", **{"timeout": "5", "\n\0{}": "x"})
    assert reply.status == "ok"
    assert any("timeout_ms" in warning for warning in reply.warnings)
    assert len(reply.warnings) == 2
    assert all(warning.isprintable() for warning in reply.warnings)


@pytest.mark.parametrize("model", ["nosuch", "..", "echo}", "a:b", "a\nb", "a\0b", "x" * 10_000])
def test_an_unknown_model_is_nil(fleet, model):
    stream = fleet.keys(model).ingress("default")
    added = fleet.server.xadd(stream, {"id": "a", "inputs": "{}"}, nomkstream=True)
    assert added is None
    assert not fleet.server.exists(stream)


@pytest.mark.parametrize("tenant", ["nobody", "../default", "default:x"])
def test_an_unknown_tenant_is_nil(fleet, tenant):
    stream = fleet.keys("echo").ingress(tenant)
    assert fleet.server.xadd(stream, {"id": "a", "inputs": "{}"}, nomkstream=True) is None


# Entries that nobody can be answered for.


def test_entries_without_an_id_are_counted_told_once_and_dropped(fleet):
    before = set(fleet.server.scan_iter(f"{fleet.namespace}:*", count=1000))
    for pairs in NAMELESS.values():
        assert send(fleet, "echo", pairs)
    fleet.wait_idle("echo")
    stream = fleet.keys("echo").ingress("default")
    assert fleet.server.xpending(stream, "router")["pending"] == 0
    left = set(fleet.server.scan_iter(f"{fleet.namespace}:*", count=1000)) - before
    assert not [name for name in left if b":re:" in name or b":req:" in name]
    told = until(
        lambda: fleet.routers[0].events("router.entry_dropped"), "the router tells of them"
    )
    assert {event["kind"] for event in told} == {"without_id"}


def test_each_kind_of_dropped_entry_is_logged_once(fleet):
    for _ in range(3):
        send(fleet, "echo", [("inputs", "{}")])
        fleet.wait_idle("echo")
        assert fleet.ask("echo").status == "ok"
    told = fleet.routers[0].events("router.entry_dropped")
    assert len(told) == 1


# Content: the device process answers.


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_cannot_be_read_is_bad_inputs(fleet, case):
    inputs, content_type = BODIES[case]
    reply = fleet.ask("echo", None, inputs=inputs, content_type=content_type)
    check_error(reply, ErrorKind.BAD_INPUTS)
    assert len(reply.error["message"]) < 300


@pytest.mark.parametrize("case", TENSOR_CASES)
def test_a_tensor_that_breaks_the_signature_is_bad_inputs(fleet, case):
    inputs, rows = TENSOR_CASES[case]
    reply = fleet.ask("checked", None, inputs=json.dumps(inputs))
    check_error(reply, ErrorKind.BAD_INPUTS)
    assert tuple(reply.error.get("rows", ())) == rows


@pytest.mark.parametrize("value", [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\x00\x00\x80\xff"])
def test_nan_and_infinity_are_bad_inputs_of_their_row(fleet, value):
    x = tensor("x", "FP32", [2, 2], bytes(12) + value)
    inputs = msgpack.packb(body(x=x))
    reply = fleet.ask("checked", None, inputs=inputs, content_type=MSGPACK, accept=JSON)
    check_error(reply, ErrorKind.BAD_INPUTS, "NaN or infinity")
    assert reply.error["rows"] == [1]


def test_a_shape_beyond_all_limits_is_too_large(fleet):
    x = tensor("x", "FP32", [10**9, 10**9], [])
    reply = fleet.ask("checked", None, inputs=json.dumps(body(x=x)))
    check_error(reply, ErrorKind.TOO_LARGE)


def test_good_tensors_are_answered(fleet):
    assert fleet.ask("checked", None, inputs=json.dumps(body())).status == "ok"


def test_an_empty_string_is_bad_inputs_of_its_row(fleet):
    reply = fleet.ask("text", ["a", "", "b", ""])
    check_error(reply, ErrorKind.BAD_INPUTS, "empty")
    assert reply.error["rows"] == [1, 3]


def test_parameters_that_are_no_object_are_refused(fleet):
    check_error(fleet.ask("echo", parameters="[1]"), ErrorKind.BAD_REQUEST, "parameters")
    check_error(fleet.ask("echo", parameters="{1"), ErrorKind.BAD_REQUEST, "parameters")


def test_an_output_that_there_is_not_is_refused(fleet):
    check_error(fleet.ask("echo", outputs="nosuch"), ErrorKind.BAD_REQUEST, "nosuch", "digest")


def test_more_rows_than_are_allowed_are_refused_although_nothing_was_said(fleet):
    reply = fleet.ask("echo", ["x"] * (ROWS_MAX + 1))
    check_error(reply, ErrorKind.TOO_MANY_ROWS, str(ROWS_MAX))


@pytest.mark.parametrize(("claim", "rows"), [("1", 3), ("3", 1), ("2048", 2)])
def test_claimed_rows_that_lie_change_nothing(fleet, claim, rows):
    reply = fleet.ask("echo", [f"row {at}" for at in range(rows)], rows=claim)
    assert reply.status == "ok"
    assert reply.usage["rows"] == rows


@pytest.mark.parametrize("claim", ["1", "10000000"])
def test_a_claimed_length_that_lies_changes_nothing(fleet, claim):
    reply = fleet.ask("text", "x" * 12, length=claim)
    assert reply.status == "ok"
    assert reply.usage["tokens"] == 4


# Length.


def test_a_text_over_the_limit_is_refused_where_the_manifest_says_so(fleet):
    reply = fleet.ask("text", ["short", "x" * 400])
    check_error(reply, ErrorKind.TOO_LONG, str(MAX_LENGTH))
    assert reply.error["rows"] == [1]


def test_a_text_over_the_limit_is_cut_where_the_manifest_says_so_and_that_is_told(fleet):
    reply = fleet.ask("cutting", "x" * 399)
    assert reply.status == "ok"
    assert reply.usage["truncated_tokens"] == 100 - MAX_LENGTH
    assert reply.usage["tokens"] == MAX_LENGTH
    assert any("cut" in warning for warning in reply.warnings)


def test_a_request_may_ask_to_be_refused_rather_than_cut(fleet):
    reply = fleet.ask("cutting", "x" * 399, truncate="refuse")
    check_error(reply, ErrorKind.TOO_LONG)


# One bad request beside good ones.


def test_good_neighbours_of_bad_requests_are_answered(fleet):
    good = [fleet.submit("text", f"text {at}") for at in range(20)]
    bad = [fleet.submit("text", None, inputs=b"{") for _ in range(20)]
    more = [fleet.submit("text", f"text {at}") for at in range(20)]
    assert [reply.status for reply in fleet.replies("text", good + more)] == ["ok"] * 40
    for reply in fleet.replies("text", bad):
        check_error(reply, ErrorKind.BAD_INPUTS)


def test_a_repeated_id_joins(fleet):
    request_id = fleet.submit("echo", "first")
    first = fleet.raw_reply("echo", request_id)
    fleet.submit("echo", "another body", id=request_id)
    fleet.submit("echo", id=request_id, version="99")
    fleet.wait_idle("echo")
    assert fleet.items("echo", request_id) == [first]
    assert decode_reply(first).status == "ok"
