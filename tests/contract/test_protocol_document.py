"""Holds every table and example of docs/protocol.md against the code, in both directions."""

import inspect
import json
import re
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path

import msgpack
import pytest
from documents.generated import states_markdown

import batchfleet
from batchfleet.broker.requests import CLOCK_TOLERANCE_MS
from batchfleet.wire import limits
from batchfleet.wire.canary import Canary
from batchfleet.wire.codec import CONTENT_TYPES, JSON, MSGPACK, decode_body, is_whole_reply
from batchfleet.wire.deployment import (
    AUTO,
    INTAKES,
    LIMIT_ROWS,
    TRUNCATE_POLICIES,
    Deployment,
    Limits,
    VersionRecord,
)
from batchfleet.wire.errors import ErrorBody, ErrorKind, RequestError, SettingsError, Source
from batchfleet.wire.keys import (
    INGRESS_GROUP,
    PRIORITIES,
    WORK_GROUP,
    ModelKeys,
    jobs_key,
    models_key,
    router_key,
    routers_key,
)
from batchfleet.wire.names import is_name
from batchfleet.wire.reply import Receipt, Reply, Usage, decode_reply
from batchfleet.wire.request import FIELDS, RESERVED, parse_request
from batchfleet.wire.states import TERMINAL
from batchfleet.wire.stats import LATENCY_EDGES_MS, stats_fields
from batchfleet.wire.tensors import BYTES, DATATYPES, decode_columns
from batchfleet.wire.work import WorkEntry, parse_work

DOCS = Path(inspect.getfile(batchfleet)).resolve().parent / "docs"
TEXT = (DOCS / "protocol.md").read_text()

Table = list[dict[str, str]]


def read_tables() -> dict[tuple[str, ...], list[Table]]:
    """All tables of the page by their header row; one header may head several tables."""
    found: dict[tuple[str, ...], list[Table]] = {}
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.MULTILINE):
        head, rule, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        ]
        assert all(set(cell) == {"-"} for cell in rule)
        table = [dict(zip(head, row, strict=True)) for row in rows]
        found.setdefault(tuple(head), []).append(table)
    return found


TABLES = read_tables()


def only_table(*head: str) -> Table:
    (table,) = TABLES[head]
    return table


def bare(cell: str) -> str:
    found = re.fullmatch("`(.+)`", cell)
    assert found, cell
    return found[1]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def names(table: Table, column: str) -> list[str]:
    listed = [bare(row[column]) for row in table]
    assert len(set(listed)) == len(listed)
    return listed


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


REQUEST_TABLE = only_table("field", "type", "when omitted", "bound", "served")
USAGE_TABLE, RECEIPT_TABLE, DEPLOY_TABLE = TABLES["field", "type", "meaning"]
REPLY_TABLE, ERROR_BODY_TABLE = TABLES["field", "type", "present", "meaning"]


def test_request_fields_are_those_of_the_code():
    served = [bare(row["field"]) for row in REQUEST_TABLE if row["served"] == "yes"]
    reserved = [bare(row["field"]) for row in REQUEST_TABLE if row["served"] == "reserved"]
    assert sorted(served) == sorted(FIELDS)
    assert sorted(reserved) == sorted(RESERVED)
    assert len(REQUEST_TABLE) == len(FIELDS) + len(RESERVED)


RANGES = [
    (bare(row["field"]), *map(int, found.groups()))
    for row in REQUEST_TABLE
    if (found := re.fullmatch(r"(\d+) to (\d+)", row["bound"]))
]


def parse_with(field: str, value: str | bytes):
    raw = value if isinstance(value, bytes) else value.encode()
    return parse_request([b"id", b"a", b"inputs", b"x", field.encode(), raw], 100)


@pytest.mark.parametrize(("field", "lowest", "highest"), RANGES)
def test_whole_numbers_of_a_request_have_the_documented_range(field, lowest, highest):
    assert getattr(parse_with(field, str(lowest)), field) == lowest
    assert getattr(parse_with(field, str(highest)), field) == highest
    for outside in (lowest - 1, highest + 1):
        with pytest.raises(RequestError):
            parse_with(field, str(outside))


def test_every_whole_number_of_a_request_has_a_range():
    whole = {bare(r["field"]) for r in REQUEST_TABLE if r["type"].startswith("whole number")}
    assert {field for field, _, _ in RANGES} == whole - set(RESERVED)


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("v", (str(limits.CONTRACT_VERSION),)),
        ("content_type", CONTENT_TYPES),
        ("accept", CONTENT_TYPES),
        ("priority", PRIORITIES),
        ("truncate", TRUNCATE_POLICIES),
    ],
)
def test_choices_of_a_request_are_those_of_the_code(field, choices):
    (row,) = [row for row in REQUEST_TABLE if bare(row["field"]) == field]
    assert words(row["bound"]) == list(choices)
    for choice in choices:
        parse_with(field, choice)
    with pytest.raises(RequestError):
        parse_with(field, "another")


@pytest.mark.parametrize("field", ["parameters", "meta"])
def test_byte_bounds_of_a_request_hold(field):
    (row,) = [row for row in REQUEST_TABLE if bare(row["field"]) == field]
    most = int(row["bound"].removesuffix(" bytes"))
    parse_with(field, b" " * most)
    with pytest.raises(RequestError):
        parse_with(field, b" " * (most + 1))


def test_defaults_of_a_request_are_those_of_the_code():
    plain = parse_request([b"id", b"a", b"inputs", b"x"], 100)
    documented = {
        bare(row["field"]): bare(row["when omitted"])
        for row in REQUEST_TABLE
        if row["when omitted"].startswith("`")
    }
    assert documented == {"content_type": plain.content_type, "priority": plain.priority}


@pytest.mark.parametrize("missing", ["id", "inputs"])
def test_fields_whose_omission_is_refused(missing):
    (row,) = [row for row in REQUEST_TABLE if bare(row["field"]) == missing]
    assert row["when omitted"] == "refused"
    other = [b"inputs", b"x"] if missing == "id" else [b"id", b"a"]
    with pytest.raises(RequestError):
        parse_request(other, 100)


def test_error_table_is_that_of_the_code():
    documented = [
        (int(r["number"]), bare(r["name"]), int(r["HTTP"]), r["source"], r["retry"])
        for r in only_table("number", "name", "HTTP", "source", "retry")
    ]
    written = [
        (k.code, k.label, k.http_status, k.source.value, "yes" if k.retryable else "no")
        for k in ErrorKind
    ]
    assert documented == written


def test_error_body_has_the_documented_fields():
    body = ErrorBody(ErrorKind.BUSY, "words", rows=(1,), retry_after_ms=5).to_wire()
    assert sorted(names(ERROR_BODY_TABLE, "field")) == sorted(body)
    always = {bare(r["field"]) for r in ERROR_BODY_TABLE if r["present"] == "always"}
    assert always == set(ErrorBody(ErrorKind.BUSY, "words").to_wire())
    (source,) = [r for r in ERROR_BODY_TABLE if bare(r["field"]) == "source"]
    assert set(words(source["meaning"])) == {source.value for source in Source}


def test_reply_usage_and_receipt_have_the_documented_fields():
    assert sorted(names(REPLY_TABLE, "field")) == sorted(item.name for item in fields(Reply))
    assert names(USAGE_TABLE, "field") == list(Usage().to_wire())
    assert names(RECEIPT_TABLE, "field") == list(Receipt().to_wire())
    (status,) = [r for r in REPLY_TABLE if bare(r["field"]) == "status"]
    assert set(words(status["meaning"])) == {state.value for state in TERMINAL}


def test_work_entry_has_the_documented_fields():
    documented = names(only_table("field", "type", "when omitted"), "field")
    assert documented[:2] == ["id", "tenant"]
    added = {"stream", "entry_id"}
    in_code = set(WorkEntry._fields) - added - {"deadline_ms"} | {"deadline"}
    assert set(documented) == in_code
    flat = [part for name in documented for part in (name.encode(), b"5")]
    entry = parse_work("stream", b"1-0", flat)
    assert all(
        str(getattr(entry, "deadline_ms" if name == "deadline" else name)).find("5") >= 0
        for name in documented
    )


def key_patterns() -> set[str]:
    """Every key that `wire.keys` can make, with the parts that vary in angle brackets."""
    keys = ModelKeys("ns", "m")
    placeholders = {"request_id": "<id>"}
    made = {models_key("ns"), routers_key("ns"), router_key("ns", "<router>"), jobs_key("ns")}
    for name, member in inspect.getmembers(ModelKeys):
        if name.startswith("_") or name in {"namespace", "model", "partition", "prefix"}:
            continue
        if inspect.isfunction(member):
            parts = [p for p in inspect.signature(member).parameters if p != "self"]
            made.add(member(keys, *(placeholders.get(part, f"<{part}>") for part in parts)))
        else:
            made.add(getattr(keys, name))
    return made


def test_keys_are_those_of_the_code():
    documented = set(names(only_table("key", "type", "life", "written by"), "key"))
    assert {key.replace("<first 8 of id>", "<id>") for key in documented} == key_patterns()
    reserved = set(names(only_table("key", "type", "for"), "key"))
    assert not reserved & documented
    (feature_cells,) = [{r["for"] for r in only_table("key", "type", "for")}]
    features = {word for cell in feature_cells for word in words(cell)}
    assert features <= set(RESERVED)


def test_keys_that_live_on_are_those_of_no_single_request():
    (listed,) = re.findall(r"^These keys have no TTL: (.+?)\. ", TEXT, re.MULTILINE | re.DOTALL)
    lasting = set(words(listed))
    lives = {bare(r["key"]): r["life"] for r in only_table("key", "type", "life", "written by")}
    reserved = set(names(only_table("key", "type", "for"), "key"))
    assert lasting <= lives.keys() | reserved
    assert not any("<id>" in key or "session" in key for key in lasting)
    assert {key for key in lasting if "ttl" in lives.get(key, "")} == set()


def test_the_channel_is_named_by_the_documented_number_of_characters():
    name = ModelKeys("ns", "m").channel("t", "0123456789")
    assert name == "ns:{m}:done:t:" + "0123456789"[: limits.NOTIFY_PREFIX_LENGTH]
    assert f"<first {limits.NOTIFY_PREFIX_LENGTH} of id>" in TEXT


def test_rights_of_a_tenant_are_those_that_its_calls_need():
    """As pairs of a command and a kind of key: none is missing, none is given for nothing."""
    (acl,) = (block for block in blocks("acl") if "acme" in block)
    given = {
        (command.upper(), place)
        for line in acl.splitlines()[1:]
        for command in re.findall(r"\+(\w+)", line)
        for place in re.findall(r"bf:\{\*\}:(\w+)", line)
    }
    cells = "; ".join(
        f"{row['needs']}; {row['optional']}" for row in only_table("call", "needs", "optional")
    )
    listed = re.findall(r"((?:[A-Z]{3,}(?:, | or | and )?)+) on ((?:`\w+`(?: and )?)+)", cells)
    needed = {
        (command, place)
        for commands, places in listed
        for command in re.findall(r"[A-Z]+", commands)
        for place in re.findall(r"\w+", places.replace(" and ", " "))
    }
    assert given == needed


def test_groups_and_clock_tolerance_are_those_of_the_code():
    groups = {
        bare(r["key"]): words(r["type"]) for r in only_table("key", "type", "life", "written by")
    }
    assert groups["ns:{m}:in:<tenant>"] == [INGRESS_GROUP]
    assert groups["ns:{m}:w:<worker>"] == [WORK_GROUP]
    assert f"more than {CLOCK_TOLERANCE_MS:,} ms ahead" in TEXT


def test_datatypes_are_those_of_the_code():
    table = only_table("datatype", "bytes", "element of a list")
    assert set(names(table, "datatype")) == {*DATATYPES, "BF16", BYTES}
    sizes = {bare(r["datatype"]): r["bytes"] for r in table}
    assert all(sizes[name] == str(dtype.itemsize) for name, dtype in DATATYPES.items())
    assert sizes["BF16"] == "2"


def limit_in(cell):
    return AUTO if cell == f"`{AUTO}`" else float(cell)


def test_deployment_limits_are_those_of_the_code():
    table = only_table("limit", "lowest", "highest", "default")
    documented = {
        bare(r["limit"]): (float(r["lowest"]), float(r["highest"]), limit_in(r["default"]))
        for r in table
    }
    defaults = Limits().to_wire()
    in_code = {name: (row.lowest, row.highest, defaults[name]) for name, row in LIMIT_ROWS.items()}
    assert documented == in_code
    besides = {item.name for item in fields(Limits)} - set(documented)
    assert besides == {"truncate", "buckets", "input_prefixes"}


def test_deploy_record_names_the_intakes():
    (intake,) = [r for r in DEPLOY_TABLE if bare(r["field"]) == "intake"]
    assert words(intake["meaning"]) == list(INTAKES)


def test_fields_of_the_stats_are_those_of_the_code():
    cells = [words(row["field"]) for row in only_table("field", "counts")]
    first, last = next(cell for cell in cells if len(cell) == 2)
    (prefix, lowest), (_, highest) = first.rsplit("h", 1), last.rsplit("h", 1)
    buckets = [f"{prefix}h{bucket}" for bucket in range(int(lowest), int(highest) + 1)]
    documented = [cell[0] for cell in cells if len(cell) == 1] + buckets
    assert sorted(documented) == sorted(stats_fields("<version>"))
    assert f"above {LATENCY_EDGES_MS[-1]:,}\nms" in TEXT


def test_the_share_of_a_canary_is_that_of_the_example():
    (salt, request_id, h, weight) = re.findall(
        r"For the salt\n`(\w+)` and the id `(\w+)`, \*h\* is `(\w+)` .*?a weight of\n([\d.]+) on",
        TEXT,
        re.DOTALL,
    )[0]
    digest = blake2b((salt + request_id).encode(), digest_size=8)
    assert digest.hexdigest() == h
    takes = [Canary("2", float(weight) + more, salt).takes(request_id) for more in (-0.01, 0)]
    assert takes == [False, True]


def test_fields_of_a_deploy_record_are_those_that_the_code_reads():
    documented = {bare(row["field"]): row["type"] for row in DEPLOY_TABLE}
    assert {name for name in documented if ":" not in name} == {
        *("stable", "canary", "epoch", "nonce", "intake", "roll")
    }
    record = VersionRecord(version="1").to_wire()
    raw = {"stable": b"1", "version:1": record}
    for name, kind in documented.items():
        if "JSON" in kind and name != "roll":
            bad = raw | {re.sub("<.*>", "2" if "kept" in name else "1", name): b"{"}
            with pytest.raises(SettingsError):
                Deployment.from_hash("m", bad)


def test_ceilings_are_those_of_the_code():
    documented = {bare(r["ceiling"]): int(r["value"]) for r in only_table("ceiling", "value")}
    in_code = {name: value for name, value in vars(limits).items() if name.isupper()}
    # Where a default or a choice of ours shows on the wire, the tables above have it.
    ours = {"TIMEOUT_MS_DEFAULT", "RESULT_TTL_MS_DEFAULT", "INLINE_BYTES_DEFAULT"}
    ours |= {"COPY_IN_SERVER_BYTES"}
    assert documented == {name: in_code[name] for name in in_code if name not in ours}


@pytest.mark.parametrize("example", blocks("json"))
def test_examples_of_inputs_are_valid(example):
    assert decode_columns(decode_body(example.encode(), JSON))


def test_example_of_a_reply_has_the_documented_shape():
    (example,) = blocks("json-reply")
    reply = decode_reply(example.encode())
    assert set(json.loads(example)) <= set(names(REPLY_TABLE, "field"))
    assert list(reply.receipt) == names(RECEIPT_TABLE, "field")
    assert list(reply.usage) == names(USAGE_TABLE, "field")
    assert decode_columns(reply.outputs)["embedding"].tolist() == [[0.25, -0.5, 1.0]]


def test_example_of_the_first_command_in_bytes():
    (example,) = blocks("resp")
    count, *lines = example.splitlines()
    lengths, parts = lines[::2], [line.encode() for line in lines[1::2]]
    assert count == f"*{len(parts)}"
    assert lengths == [f"${len(part)}" for part in parts]
    ingress = ModelKeys("bf", "minilm").ingress("default").encode()
    assert parts[:4] == [b"XADD", ingress, b"NOMKSTREAM", b"*"]
    request = parse_request(parts[4:], limits.INPUTS_BYTES_MAX)
    assert decode_columns(decode_body(request.inputs, JSON)) == {"text": ["hello world"]}
    pattern = r"^XADD (\S+) NOMKSTREAM \* id (\S+) inputs '(.*)'\nBLMOVE (\S+) (\S+) "
    commands = re.search(pattern, TEXT, re.MULTILINE)
    assert commands is not None
    stream, request_id, inputs, source, target = commands.groups()
    assert (stream.encode(), request_id) == (ingress, request.id)
    assert inputs.encode() == request.inputs
    assert source == target == ModelKeys("bf", "minilm").reply("default", request.id)


def test_example_of_a_notification_in_bytes():
    (example,) = blocks("hex")
    whole, bare_id = msgpack.unpackb(bytes.fromhex(example), raw=True)
    assert is_whole_reply(whole)
    assert decode_reply(whole).status == "ok"
    assert not is_whole_reply(bare_id)
    assert is_name(bare_id.decode())


def test_states_document_is_drawn_from_the_table():
    assert (DOCS / "states.md").read_text() == states_markdown()


def test_protocol_shows_the_same_diagram():
    (diagram,) = blocks("mermaid")
    assert diagram in states_markdown()


def test_name_rule_is_that_of_the_code():
    (rule,) = [w for w in words(TEXT[: TEXT.index("## 3.")]) if w.startswith("[A-Z")]
    assert re.fullmatch(rule, "a" * limits.NAME_BYTES_MAX)
    assert not re.fullmatch(rule, "a" * (limits.NAME_BYTES_MAX + 1))
    for code in range(256):
        for text in (f"a{chr(code)}", f"{chr(code)}a"):
            assert is_name(text) == bool(re.fullmatch(rule, text)), ascii(text)


def test_reply_encodings_are_told_apart_as_documented():
    assert {JSON, MSGPACK} == set(CONTENT_TYPES)
    for item in (b"", b"a", b"7f3c", b"-"):
        assert not is_whole_reply(item)
