"""The runtime protocol as written down (tables, examples, golden frames) against the code."""

import json
import re
import struct
import typing
from pathlib import Path

import msgpack
import pytest

from batchfleet.consumer.link import protocol
from batchfleet.consumer.link.frames import FrameReader
from batchfleet.consumer.link.protocol import OPS, decode, encode
from batchfleet.wire.errors import ErrorKind, ProtocolError

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "runtime-protocol.md").read_text()
VECTORS = ROOT / "tests" / "contract" / "vectors" / f"runtime-v{protocol.PROTOCOL_VERSION}"
MESSAGES = json.loads((VECTORS / "messages.json").read_text())
PARTS = {
    cls.__name__: cls
    for cls in (
        protocol.Item,
        protocol.PreparedItem,
        protocol.Answer,
        protocol.Failure,
        protocol.EngineInUse,
    )
}
HEAD = "| field | type | meaning |\n|---|---|---|\n"


def tables_of(document):
    """Heading → [(field, type without spaces)], of every table of fields."""
    tables = {}
    for section in document.split("\n### ")[1:]:
        name, _, text = section.partition("\n")
        rows = text.partition(HEAD)[2].split("\n\n")[0].splitlines()
        cells = [[cell.strip(" `") for cell in row.split("|")] for row in rows]
        tables[name] = [(field, kind.replace(" ", "")) for _, field, kind, *_ in cells]
    return tables


TABLES = tables_of(DOCUMENT)
WRITTEN_TYPES = {
    int: "int",
    float: "float",
    str: "str",
    bytes: "bin",
    str | None: "strornil",
    bytes | None: "binornil",
    list[int]: "arrayofint",
    list[tuple[int, int]]: "arrayof[int,int]",
    list[tuple[int, int, float]]: "arrayof[int,int,float]",
} | {list[cls]: f"arrayof{name}" for name, cls in PARTS.items()}


def golden(name):
    return bytes.fromhex((VECTORS / name).read_text())


def value_of(written):
    """A field of `messages.json`; bytes are written as `{"hex": …}`."""
    if isinstance(written, dict):
        return bytes.fromhex(written["hex"])
    return [value_of(item) for item in written] if isinstance(written, list) else written


def plain(value):
    """Tuples, named or not, as the lists that msgpack makes of them."""
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("cls", [*OPS.values(), *PARTS.values()], ids=lambda cls: cls.__name__)
def test_tables_of_the_document_name_the_fields_in_order_with_their_types(cls):
    hints = typing.get_type_hints(cls)
    assert TABLES[cls.__name__] == [(name, WRITTEN_TYPES[hints[name]]) for name in cls._fields]


def test_the_document_has_no_table_of_something_that_does_not_exist():
    assert set(TABLES) == set(OPS) | set(PARTS)


def test_the_document_states_the_version_and_frame_limit_of_the_code():
    assert DOCUMENT.startswith(f"# Runtime protocol, version {protocol.PROTOCOL_VERSION}\n")
    assert f"{protocol.FRAME_BYTES_MAX >> 20} MiB" in DOCUMENT


def test_error_codes_in_the_document_are_those_of_the_table():
    named = re.findall(r"\b([123]\d\d) \(?`(\w+)`", DOCUMENT)
    known = {(str(kind.code), kind.label) for kind in ErrorKind}
    assert len(named) >= 8
    assert set(named) <= known


def test_every_message_has_a_golden_frame():
    assert {entry["op"] for entry in MESSAGES} == set(OPS)
    assert {entry["file"] for entry in MESSAGES} == {path.name for path in VECTORS.glob("*.hex")}


@pytest.mark.parametrize("entry", MESSAGES, ids=lambda entry: entry["file"])
def test_golden_frames_decode_to_their_messages_and_back(entry):
    frame = golden(entry["file"])
    (body,) = FrameReader().feed(frame)
    message = decode(body)
    assert type(message) is OPS[entry["op"]]
    assert plain(message) == value_of(entry["fields"])
    assert struct.pack("<I", len(body)) + encode(message) == frame


def test_frames_are_cut_right_however_the_bytes_arrive():
    frames = [golden(entry["file"]) for entry in MESSAGES]
    reader = FrameReader()
    stream = b"".join(frames)
    bodies = [body for at in range(len(stream)) for body in reader.feed(stream[at : at + 1])]
    assert bodies == [frame[4:] for frame in frames]


def test_examples_in_the_document_are_golden_frames():
    examples = re.findall(r"\(`(\w+\.hex)`\):\n\n```hex\n(.*?)```", DOCUMENT, re.DOTALL)
    assert len(examples) >= 4
    for name, written in examples:
        assert bytes.fromhex(written) == golden(name)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        msgpack.packb([]),
        msgpack.packb(["Fly", 1]),
        msgpack.packb(["Unload"]),
        msgpack.packb(["Unload", 1, 2]),
        msgpack.packb(["Run", 1, 2, [[1, 2, 3]]]),
        msgpack.packb(["Prepare", 1, [[1, 2]]]),
        msgpack.packb(["Prepare", 1, 7]),
        msgpack.packb(["Prepare"]),
        msgpack.packb({"op": "Stop"}),
        msgpack.packb(7),
        msgpack.packb(["Stop"]) + b"\x00",
    ],
)
def test_what_is_no_message_is_an_error_of_the_protocol(body):
    with pytest.raises(ProtocolError):
        decode(body)


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError):
        FrameReader().feed(struct.pack("<I", protocol.FRAME_BYTES_MAX + 1))
