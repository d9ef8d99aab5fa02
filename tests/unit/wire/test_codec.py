import json

import msgpack
import numpy as np
import pytest
from support.cpu_time import cpu_time

from batchfleet.wire.codec import (
    JSON,
    MSGPACK,
    decode_body,
    decode_reply_map,
    encode_body,
    is_whole_reply,
)
from batchfleet.wire.errors import RequestError

MEBIBYTE = 1024 * 1024


def test_json_takes_numpy_arrays():
    raw = encode_body({"a": np.arange(3, dtype="<i8")}, JSON)
    assert decode_body(raw, JSON) == {"a": [0, 1, 2]}


def test_nesting_is_bounded_the_same_in_both_encodings():
    body = "leaf"
    for _ in range(32):
        body = [body]
    for content_type in (JSON, MSGPACK):
        assert decode_body(encode_body(body, content_type), content_type) == body
        with pytest.raises(RequestError, match="nest deeper than 32"):
            decode_body(encode_body([body], content_type), content_type)


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        pytest.param(MSGPACK, (b"\xdd" + (4_000_000).to_bytes(4, "big")) * 500, id="array headers"),
        pytest.param(MSGPACK, b"\x91" * MEBIBYTE, id="msgpack nesting"),
        pytest.param(MSGPACK, b"\xdc\xff\xff" * (MEBIBYTE // 3), id="small array headers"),
        pytest.param(JSON, b"[" * MEBIBYTE, id="json nesting"),
        pytest.param(JSON, b"9" * MEBIBYTE, id="digits"),
        pytest.param(JSON, b"1." + b"9" * MEBIBYTE, id="digits of a fraction"),
        pytest.param(JSON, b"1e" + b"9" * MEBIBYTE, id="digits of an exponent"),
        pytest.param(JSON, b'{"a":' * (MEBIBYTE // 5), id="json objects"),
        pytest.param(JSON, b'"' + b"\\u0000" * (MEBIBYTE // 6), id="escapes"),
    ],
)
def test_hostile_bodies_take_little_time(content_type, raw):
    raw = raw.ljust(4 * MEBIBYTE, b"\xc0") if content_type == MSGPACK else raw
    with cpu_time() as taken:
        try:
            decode_body(raw, content_type)
        except RequestError as error:
            assert len(error.message) < 200  # noqa: PT017 - a number with a long fraction is none
    assert taken.seconds < 3


REPEATED = [
    b'{"a": 1, "a": 1}',
    b'{"a" :1, "\\u0061"\n: 1}',
    b'[{"b": {"a": 1, "a": 2}}]',
    b'{"a": {"b": 1}, "a": 1, "c": "\\":"}',
]
BEYOND = [b"18446744073709551616", b"-9223372036854775809", b'[0.5, {"a": [36893488147419103232]}]']


@pytest.mark.parametrize("raw", [*REPEATED, *BEYOND])
def test_json_that_others_would_read_differently_is_refused(raw):
    with pytest.raises(RequestError, match=r"repeats a key|beyond 64 bits"):
        decode_body(raw, JSON)


@pytest.mark.parametrize(
    "value",
    [
        {"text": ['he said: "a": 1', '":":', ":", ""], "a:": {"": [{}, []]}},
        [0.5, 1e300, -1e300, 2.0**64, -(2.0**63), 2**64 - 1, -(2**63), 0, True, None],
        {"a": {"a": {"a": [{"a": 1}, {"a": 1}]}}},
    ],
)
def test_json_that_looks_like_it_is_decoded(value):
    for raw in (encode_body(value, JSON), json.dumps(value, indent=1).encode()):
        assert decode_body(raw, JSON) == value


def test_an_error_never_quotes_the_body():
    with pytest.raises(RequestError) as caught:
        decode_body(b'{"secret": secret', JSON)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("raw", [b"", b"[]", b"\x90", b"{", b"\xc1", b"5"])
def test_what_is_no_map_is_no_reply(raw):
    with pytest.raises(ValueError):
        decode_reply_map(raw)


def test_whole_replies_and_ids_are_told_apart():
    assert is_whole_reply(b"{}")
    assert is_whole_reply(msgpack.packb({"a": 1}))
    assert is_whole_reply(msgpack.packb({str(at): at for at in range(20)}))
    assert not is_whole_reply(b"a1")
    assert not is_whole_reply(b"")
