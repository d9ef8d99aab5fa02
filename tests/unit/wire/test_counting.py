"""X4: what a body makes of its bytes is counted before it is decoded."""

import json
import struct

import msgpack
import pytest
from support.cpu_time import cpu_time

from batchfleet.wire.codec import JSON, MSGPACK, decode_body
from batchfleet.wire.errors import CallerError, ErrorKind
from batchfleet.wire.limits import LISTS_MAX, TEXTS_MAX

BYTES = 4 * 1024 * 1024
# A few times what it takes where nothing else runs; without the count it is ten times as much.
REFUSED_S = 0.4


def array_of(item):
    count = BYTES // len(item) - 5
    return b"\xdd" + struct.pack(">I", count) + item * count


def json_of(item):
    return b"[" + b",".join([item] * (BYTES // (len(item) + 1) - 5)) + b"]"


HOSTILE = {
    "empty maps": (array_of(b"\x80"), MSGPACK),
    "empty arrays": (array_of(b"\x90"), MSGPACK),
    "maps of one": (array_of(b"\x81\xa1a\xc0"), MSGPACK),
    "arrays with a long header": (array_of(b"\xdc\x00\x00"), MSGPACK),
    "maps with a longer one": (array_of(b"\xdf\x00\x00\x00\x00"), MSGPACK),
    "nulls": (array_of(b"\xc0"), MSGPACK),
    "empty texts": (array_of(b"\xa0"), MSGPACK),
    "short texts": (array_of(b"\xa2ab"), MSGPACK),
    "short bytes": (array_of(b"\xc4\x02ab"), MSGPACK),
    "lists among numbers": (array_of(b"\xcd\x10\x00\x90"), MSGPACK),
    "numbers in lists": (array_of(b"\x91\xca\x3f\x80\x00\x01"), MSGPACK),
    "objects in JSON": (json_of(b"{}"), JSON),
    "lists in JSON": (json_of(b"[]"), JSON),
    "pixels in JSON": (json_of(b"[1,2,3]"), JSON),
    "texts in JSON": (json_of(b'"ab"'), JSON),
    "escapes in JSON": (json_of(b'"\\""'), JSON),
    "nulls in JSON": (json_of(b"null"), JSON),
    "keys in JSON": (
        b"{" + b",".join(b'"%06x":1' % at for at in range(BYTES // 11)) + b"}",
        JSON,
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_body_of_many_objects_is_refused_before_they_are_made(case):
    """X4: T9."""
    raw, content_type = HOSTILE[case]
    with cpu_time() as taken, pytest.raises(CallerError) as caught:
        decode_body(raw, content_type)
    assert taken.seconds < REFUSED_S
    assert caught.value.kind is ErrorKind.BAD_INPUTS
    assert "more than " in caught.value.message


ALLOWED = {
    "as many lists as allowed": [[] for _ in range(LISTS_MAX - 1)],
    "as many texts as allowed": ["ab"] * TEXTS_MAX,
    "numbers": [1.5] * 500_000,
    "a text full of brackets": {"text": ["[{" * 200_000]},
    "a text full of quotes": {"text": ['"\\' * 400_000]},
    "a text full of nulls": {"text": ["null" * 200_000]},
    "a text that msgpack would take for markers": {"text": ["ж" * 400_000]},
    "images as nested lists": [[[0.5, 1, 2]] * 224] * 224,
}


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_large_for_other_reasons_is_decoded(case, content_type):
    """X4."""
    value = ALLOWED[case]
    raw = json.dumps(value, ensure_ascii=False).encode()
    if content_type == MSGPACK:
        raw = msgpack.packb(value)
    assert decode_body(raw, content_type) == value


def test_bytes_that_look_like_markers_are_passed_over():
    """X4."""
    value = [{"data": bytes(range(256)) * 10_000}, -1, 2**40, 1.5, True, None, "x" * 300]
    assert decode_body(msgpack.packb(value), MSGPACK) == value


@pytest.mark.parametrize(("each", "most"), [([], LISTS_MAX - 1), ("a", TEXTS_MAX)])
@pytest.mark.parametrize("pack", [(JSON, json.dumps), (MSGPACK, msgpack.packb)])
def test_one_more_than_allowed_is_refused(pack, each, most):
    """X4."""
    content_type, encode = pack
    raw = encode([each] * (most + 1))
    with pytest.raises(CallerError, match="more than"):
        decode_body(raw if type(raw) is bytes else raw.encode(), content_type)


@pytest.mark.parametrize("end", [b"\xc1", b"\xdb\xff", b"\xcb\x00", b"\xc7\x01\x01a", b"\xd9"])
def test_a_body_that_is_cut_off_or_no_msgpack_is_refused_as_ever(end):
    """X4."""
    raw = b"\xdd" + struct.pack(">I", LISTS_MAX) + b"\xa0" * (TEXTS_MAX - 1) + end
    with pytest.raises(CallerError):
        decode_body(raw, MSGPACK)


@pytest.mark.parametrize(
    "raw", [b'["\\', b'["' + b'\\"' * 500_000, b'"' * 1_000_001, b"[" * 100_000]
)
def test_texts_that_do_not_end_are_refused_soon(raw):
    """X4: no expression of ours looks at the same bytes again and again."""
    with cpu_time() as taken, pytest.raises(CallerError):
        decode_body(raw, JSON)
    assert taken.seconds < REFUSED_S
