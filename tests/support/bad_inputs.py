"""Inputs that are wrong in every way that the contract names. Data only."""

import json

import msgpack

from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.limits import META_BYTES_MAX, PARAMETERS_BYTES_MAX, ROWS_MAX


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def body(x=None, n=None):
    good_x = tensor("x", "FP32", [2, 2], [0.0, 0.5, -1.0, 1.0])
    return [x or good_x, n or tensor("n", "INT64", [2], [1, 2])]


# Headers: the fields, the error, and a word of its message.

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

# Bodies that are not what their content type says, or hold no inputs.

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

# Tensors that break the signature of `checked`, and the rows at fault.

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
