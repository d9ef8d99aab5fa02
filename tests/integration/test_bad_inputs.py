"""Bad input gets a clear error reply, and nothing is lost: each case as a raw entry, on real processes.

`checked` holds tensors against a signature; `text` takes one column of strings with a length limit.
"""

import json
import secrets

import msgpack
import pytest
from support.fleet import draft_of, limits, running_fleet, until

from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.deployment import Signature, TensorSpec
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.limits import META_BYTES_MAX, PARAMETERS_BYTES_MAX, ROWS_MAX
from batchfleet.wire.reply import decode_reply

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
    namespace = f"t{secrets.token_hex(6)}"
    with running_fleet(redis_server, namespace, tmp_path_factory.mktemp("fleet")) as found:
        for draft in (
            draft_of("echo", "echo"),
            checked_draft(),
            text_draft("text", "refuse"),
            text_draft("cutting", "end"),
        ):
            found.deploy(draft)
        found.router_program = found.start("router")
        found.worker_program = found.start("consumer")
        found.router_program.wait_until_ready()
        found.worker_program.wait_until_ready()
        found.first_device_pid = found.worker_program.device_pid()
        yield found
        keys = list(found.server.scan_iter(f"{namespace}:*", count=1000))
        found.server.unlink(*keys)


@pytest.fixture(autouse=True)
def everybody_lives(fleet):
    """After each case: nothing is left over, the same processes run, and they answer."""
    yield
    for model in ("echo", "checked", "text", "cutting"):
        fleet.wait_idle(model)
    assert fleet.router_program.is_running()
    assert fleet.worker_program.is_running()
    assert fleet.worker_program.device_pid() == fleet.first_device_pid
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


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def body(x=None, n=None):
    good_x = tensor("x", "FP32", [2, 2], [0.0, 0.5, -1.0, 1.0])
    return [x or good_x, n or tensor("n", "INT64", [2], [1, 2])]


# Headers: the router answers.

HEADERS = {
    "unknown version": ({"version": "99"}, ErrorKind.UNKNOWN_VERSION, "99"),
    "version is no name": ({"version": "../1"}, ErrorKind.BAD_REQUEST, "version"),
    "version with a brace": ({"version": "1}{x"}, ErrorKind.BAD_REQUEST, "version"),
    "version with a colon": ({"version": "1:high:0"}, ErrorKind.BAD_REQUEST, "version"),
    "version with a newline": ({"version": "1\n"}, ErrorKind.BAD_REQUEST, "version"),
    "version with NUL": ({"version": "1\0"}, ErrorKind.BAD_REQUEST, "version"),
    "version of 10 kB": ({"version": "1" * 10_000}, ErrorKind.BAD_REQUEST, "version"),
    "contract version": ({"v": "2"}, ErrorKind.BAD_REQUEST, "v must be"),
    "content type": ({"content_type": "text/plain"}, ErrorKind.UNSUPPORTED_CONTENT_TYPE, "json"),
    "accept": ({"accept": "text/html"}, ErrorKind.UNSUPPORTED_CONTENT_TYPE, "accept"),
    "outputs": ({"outputs": "a,,b"}, ErrorKind.BAD_REQUEST, "outputs"),
    "parameters too large": (
        {"parameters": json.dumps("x" * PARAMETERS_BYTES_MAX)},
        ErrorKind.BAD_REQUEST,
        "parameters",
    ),
    "priority": ({"priority": "urgent"}, ErrorKind.BAD_REQUEST, "priority"),
    "time-out of nothing": ({"timeout_ms": "0"}, ErrorKind.BAD_REQUEST, "timeout_ms"),
    "time-out of years": ({"timeout_ms": "9" * 30}, ErrorKind.BAD_REQUEST, "timeout_ms"),
    "negative time-out": ({"timeout_ms": "-5"}, ErrorKind.BAD_REQUEST, "timeout_ms"),
    "time-out in words": ({"timeout_ms": "soon"}, ErrorKind.BAD_REQUEST, "timeout_ms"),
    "result ttl": ({"result_ttl_ms": "1e9"}, ErrorKind.BAD_REQUEST, "result_ttl_ms"),
    "rows of nothing": ({"rows": "0"}, ErrorKind.BAD_REQUEST, "rows"),
    "too many rows": ({"rows": str(ROWS_MAX + 1)}, ErrorKind.TOO_MANY_ROWS, str(ROWS_MAX)),
    "length": ({"length": "ten"}, ErrorKind.BAD_REQUEST, "length"),
    "truncate": ({"truncate": "start"}, ErrorKind.BAD_REQUEST, "truncate"),
    "meta too large": ({"meta": "m" * (META_BYTES_MAX + 1)}, ErrorKind.BAD_REQUEST, "meta"),
    "meta not text": ({"meta": b"\xff\xfe"}, ErrorKind.BAD_REQUEST, "UTF-8"),
    "session": ({"session": "s"}, ErrorKind.BAD_REQUEST, "session"),
    "callback": ({"callback": "http://x"}, ErrorKind.BAD_REQUEST, "callback"),
    "inputs_at": ({"inputs_at": "blob"}, ErrorKind.BAD_REQUEST, "inputs_at"),
    "empty inputs": ({"inputs": ""}, ErrorKind.BAD_REQUEST, "inputs"),
}


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

NAMELESS = {
    "no id": [("inputs", "{}")],
    "empty id": [("id", ""), ("inputs", "{}")],
    "doubled id": [("id", "a"), ("id", "a"), ("inputs", "{}")],
    "two ids": [("id", "a"), ("id", "b"), ("inputs", "{}")],
    "path": [("id", "../a"), ("inputs", "{}")],
    "braces": [("id", "{a}"), ("inputs", "{}")],
    "colon": [("id", "a:b"), ("inputs", "{}")],
    "newline": [("id", "a\n"), ("inputs", "{}")],
    "NUL": [("id", "a\0b"), ("inputs", "{}")],
    "10 kB": [("id", "a" * 10_000), ("inputs", "{}")],
    "not UTF-8": [("id", b"\xff\xfe"), ("inputs", "{}")],
    "10,000 fields": [(f"f{at}", "x") for at in range(10_000)],
}


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
        lambda: fleet.router_program.events("router.entry_dropped"), "the router tells of them"
    )
    assert {event["kind"] for event in told} == {"without_id"}


def test_each_kind_of_dropped_entry_is_logged_once(fleet):
    for _ in range(3):
        send(fleet, "echo", [("inputs", "{}")])
        fleet.wait_idle("echo")
        assert fleet.ask("echo").status == "ok"
    told = fleet.router_program.events("router.entry_dropped")
    assert len(told) == 1


# Content: the device process answers.

BODIES = {
    "not JSON": (b"{text: [hello]}", JSON),
    "half of JSON": (b'{"text": ["hel', JSON),
    "a key twice": (b'{"text": ["a"], "text": ["b"]}', JSON),
    "not UTF-8": (b'{"text": ["\xff"]}', JSON),
    "a lone surrogate": (b'{"text": ["\\ud800"]}', JSON),
    "NaN in JSON": (b'[{"name": "x", "datatype": "FP32", "shape": [1], "data": [NaN]}]', JSON),
    "1e999": (b'[{"name": "x", "datatype": "FP32", "shape": [1], "data": [1e999]}]', JSON),
    "nested": (b'{"text": ' + b"[" * 100 + b"]" * 100 + b"}", JSON),
    "nested very deep": (b"[" * 50_000 + b"]" * 50_000, JSON),
    "integer of 4,000 digits": (b"[" + b"9" * 4000 + b"]", JSON),
    "JSON said, msgpack sent": (msgpack.packb({"text": ["hello"]}), JSON),
    "msgpack said, JSON sent": (b'{"text": ["hello"]}', MSGPACK),
    "half of msgpack": (msgpack.packb({"text": ["hello"]})[:-2], MSGPACK),
    "msgpack and more": (msgpack.packb({"text": ["hello"]}) + b"\x01", MSGPACK),
    "a length that lies": (b"\xdd\xff\xff\xff\xff\x01", MSGPACK),
    "a string length that lies": (b"\x81\xa4text\xdb\xff\xff\xff\xffab", MSGPACK),
    "a map length that lies": (b"\xdf\xff\xff\xff\xff\xa1a\x01", MSGPACK),
    "an extension": (msgpack.packb({"text": [msgpack.ExtType(1, b"x")]}), MSGPACK),
    "keys that are no strings": (msgpack.packb({1: ["hello"]}), MSGPACK),
    "another key": (b'{"texts": ["hello"]}', JSON),
    "a key more": (b'{"text": ["hello"], "more": 1}', JSON),
    "a string": (b'"hello"', JSON),
    "a number": (b"7", JSON),
    "null": (b"null", JSON),
    "an empty map": (b"{}", JSON),
    "an empty list": (b"[]", JSON),
    "an empty list of texts": (b'{"text": []}', JSON),
    "a text that is a number": (b'{"text": ["a", 7]}', JSON),
    "a text alone": (b'{"text": "hello"}', JSON),
}


@pytest.mark.parametrize("case", BODIES)
def test_a_body_that_cannot_be_read_is_bad_inputs(fleet, case):
    inputs, content_type = BODIES[case]
    reply = fleet.ask("echo", None, inputs=inputs, content_type=content_type)
    check_error(reply, ErrorKind.BAD_INPUTS)
    assert len(reply.error["message"]) < 300


X, N = "x", "n"
TENSOR_CASES = {
    "a tensor less": ([tensor("n", "INT64", [2], [1, 2])], ()),
    "a tensor more": ([*body(), tensor("y", "INT64", [2], [1, 2])], ()),
    "a tensor twice": ([*body(), tensor("n", "INT64", [2], [1, 2])], ()),
    "no name": ([{"datatype": "FP32", "shape": [1], "data": [1]}], ()),
    "a name with a path": (body(n=tensor("../n", "INT64", [2], [1, 2])), ()),
    "a name of 10 kB": (body(n=tensor("n" * 10_000, "INT64", [2], [1, 2])), ()),
    "wrong datatype": (body(x=tensor("x", "FP64", [2, 2], [0, 0, 0, 0])), ()),
    "unknown datatype": (body(x=tensor("x", "FP33", [2, 2], [0, 0, 0, 0])), ()),
    "strings for numbers": (body(x=tensor("x", "BYTES", [2], ["a", "b"])), ()),
    "floats for integers": (body(n=tensor("n", "INT64", [2], [1.5, 2])), ()),
    "booleans for numbers": (body(n=tensor("n", "INT64", [2], [True, False])), ()),
    "null": (body(x=tensor("x", "FP32", [2, 2], [0, None, 0, 0])), ()),
    "wrong width": (body(x=tensor("x", "FP32", [2, 3], [0] * 6)), ()),
    "an axis more": (body(x=tensor("x", "FP32", [2, 2, 1], [0] * 4)), ()),
    "an axis less": (body(x=tensor("x", "FP32", [2], [0] * 2)), ()),
    "no rows": ([tensor("x", "FP32", [0, 2], []), tensor("n", "INT64", [0], [])], ()),
    "rows that differ": (body(n=tensor("n", "INT64", [3], [1, 2, 3])), ()),
    "negative shape": (body(x=tensor("x", "FP32", [-1, 2], [0] * 4)), ()),
    "shape in words": (body(x=tensor("x", "FP32", "2x2", [0] * 4)), ()),
    "shape that claims more": (body(x=tensor("x", "FP32", [1000, 2], [0] * 4)), ()),
    "shape that claims less": (body(x=tensor("x", "FP32", [1, 2], [0] * 4)), ()),
    "ragged": (body(x=tensor("x", "FP32", [2, 2], [[0, 1], [0]])), ()),
    "over the range": (body(x=tensor("x", "FP32", [2, 2], [0, 0, 0, 1.5])), (1,)),
    "under the range": (body(x=tensor("x", "FP32", [2, 2], [-2, 0, 0, 0])), (0,)),
    "beyond the datatype": (body(x=tensor("x", "FP32", [2, 2], [1e300, 0, 0, 0])), ()),
    "not base64": (body(x=tensor("x", "FP32", [2, 2], {"b64": "§§"})), ()),
    "bytes too few": (body(x=tensor("x", "FP32", [2, 2], {"b64": "AAAA"})), ()),
}


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
