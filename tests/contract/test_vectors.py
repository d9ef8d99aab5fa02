"""Replays `vectors/v1`: what version 1 of the contract says, in bytes, for any language."""

import json
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from batchfleet.wire.codec import decode_body, is_whole_reply
from batchfleet.wire.errors import RequestError
from batchfleet.wire.reply import decode_reply
from batchfleet.wire.request import find_id, parse_request
from batchfleet.wire.signature import Signature
from batchfleet.wire.tensors import (
    DATATYPES,
    check_columns,
    count_rows,
    datatype_of,
    decode_columns,
)
from batchfleet.wire.work import parse_work, work_fields

FOLDER = Path(__file__).parent / "vectors" / "v1"


def vectors(name):
    listed = json.loads((FOLDER / name).read_text())["vectors"]
    return [pytest.param(v["input"], v["expected"], id=v["description"]) for v in listed]


def to_bytes(spec: Any) -> bytes:
    if isinstance(spec, str):
        return spec.encode()
    if isinstance(spec, list):
        return b"".join(map(to_bytes, spec))
    if "hex" in spec:
        return bytes.fromhex(spec["hex"])
    return to_bytes(spec["repeat"]) * spec["times"]


def entry_of(given) -> list[bytes]:
    filler = [f for n in range(given.get("filler_fields", 0)) for f in (f"f{n}", "x")]
    return [to_bytes(field) for field in [*given["fields"], *filler]]


def present_parts(message) -> dict[str, Any]:
    """The parts of a message that are not absent."""
    names = message._fields if isinstance(message, tuple) else message.__slots__
    parts = {name: getattr(message, name) for name in names}
    return {name: value for name, value in parts.items() if value is not None}


@pytest.mark.parametrize(("given", "expected"), vectors("requests.json"))
def test_request(given, expected):
    flat = entry_of(given)
    bound = given.get("max_request_bytes", 4194304)
    if "error" in expected:
        with pytest.raises(RequestError) as caught:
            parse_request(flat, bound)
        assert caught.value.name == expected["error"]
        assert find_id(flat) == expected["id"]
        assert all(text in caught.value.message for text in expected.get("mentions", ()))
        assert len(caught.value.message) <= 500
        assert caught.value.message.isprintable()
        return
    request = parse_request(flat, bound)
    for name, value in expected["request"].items():
        found = getattr(request, name)
        assert found == (to_bytes(value) if isinstance(found, bytes) else value), name
    absent = set(request.__slots__) - set(expected["request"]) - {"warnings"}
    defaults = parse_request([b"id", b"a", b"inputs", b"x"], bound)
    assert all(getattr(request, name) == getattr(defaults, name) for name in absent)
    wanted = expected.get("warnings_mention", [])
    assert bool(request.warnings) == bool(wanted)
    assert len(request.warnings) <= 8
    assert all(text in " ".join(request.warnings) for text in wanted)
    assert all(len(warning) < 300 and warning.isprintable() for warning in request.warnings)


@pytest.mark.parametrize(("given", "expected"), vectors("bodies.json"))
def test_body(given, expected):
    signature = Signature.from_wire({"inputs": given.get("signature", [])})

    def read():
        body = decode_body(to_bytes(given["body"]), given["content_type"])
        columns = decode_columns(body, signature)
        count_rows(columns)
        check_columns(columns, signature)
        return columns

    if "error" in expected:
        with pytest.raises(RequestError) as caught:
            read()
        assert caught.value.name == expected["error"]
        assert list(caught.value.rows) == expected.get("rows", [])
        return
    columns = read()
    assert set(columns) == set(expected["columns"])
    for name, column in expected["columns"].items():
        assert_column(columns[name], column)


def assert_column(found, expected):
    if expected["datatype"] == "BYTES":
        wanted = [to_bytes(item) if isinstance(item, dict) else item for item in expected["data"]]
        assert found == wanted
        assert [len(found)] == expected["shape"]
        return
    assert datatype_of(found.dtype) == expected["datatype"]
    assert list(found.shape) == expected["shape"]
    if isinstance(expected["data"], dict):
        assert found.tobytes() == to_bytes(expected["data"])
    else:
        dtype = DATATYPES[expected["datatype"]]
        assert np.array_equal(found.reshape(-1), np.array(expected["data"], dtype))


@pytest.mark.parametrize(("given", "expected"), vectors("replies.json"))
def test_reply(given, expected):
    raw = to_bytes(given["reply"])
    if expected.get("malformed"):
        with pytest.raises(ValueError):
            decode_reply(raw)
        return
    assert is_whole_reply(raw)
    reply = decode_reply(raw)
    for name, value in expected["reply"].items():
        found = getattr(reply, name)
        assert (list(found) if isinstance(found, tuple) else found) == value, name
    if expected["outputs"] is None:
        assert reply.outputs is None
    else:
        columns = decode_columns(reply.outputs)
        assert set(columns) == set(expected["outputs"])
        for name, column in expected["outputs"].items():
            assert_column(columns[name], column)
    assert_error(reply.to_error(), expected.get("raises"))


def assert_error(error, expected):
    if expected is None:
        assert error is None
        return
    assert type(error).__name__ == expected["family"]
    assert error.kind.label == expected["kind"]
    assert error.retry_after_ms == expected.get("retry_after_ms")
    assert list(error.rows) == expected.get("rows", [])


@pytest.mark.parametrize(("given", "expected"), vectors("work.json"))
def test_work_entry(given, expected):
    def read():
        return parse_work(given["stream"], given["entry_id"].encode(), entry_of(given))

    if expected.get("malformed"):
        with pytest.raises(ValueError):
            read()
        return
    entry = read()
    assert entry.accepted_ms == 1790000000000
    wanted = {"stream": given["stream"], "entry_id": given["entry_id"].encode(), "warnings": ()}
    wanted |= {"attempt": 1, "retries": 0, **expected["entry"]}
    wanted["warnings"] = tuple(wanted["warnings"])
    for name in ("inputs", "parameters"):
        if name in wanted:
            wanted[name] = to_bytes(wanted[name])
    assert present_parts(entry) == wanted


@pytest.mark.parametrize(("given", "expected"), vectors("work_from_request.json"))
def test_work_entry_from_request(given, expected):
    flat = work_fields(parse_request(entry_of(given), 4194304), given["tenant"])
    wanted = [to_bytes(field) for field in expected["fields"]]
    assert flat[:4] == wanted[:4]
    assert sorted(pairs(flat)) == sorted(pairs(wanted))


def pairs(flat):
    return list(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.parametrize(("given", "expected"), vectors("notifications.json"))
def test_notification(given, expected):
    found = msgpack.unpackb(to_bytes(given["message"]), raw=True)
    assert found == [to_bytes(element["bytes"]) for element in expected["elements"]]
    wanted = [element["whole_reply"] for element in expected["elements"]]
    assert [is_whole_reply(element) for element in found] == wanted


def test_every_file_is_replayed():
    replayed = {
        "requests.json",
        "bodies.json",
        "replies.json",
        "work.json",
        "work_from_request.json",
        "notifications.json",
    }
    assert {path.name for path in FOLDER.glob("*.json")} == replayed
