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
