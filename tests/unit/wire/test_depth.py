"""X10: JSON from outside has a depth, wherever it comes from; beyond it there is one sentence."""

import json

import orjson
import pytest
from click.testing import CliRunner

from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import Manifest
from batchfleet.ops.cli import main
from batchfleet.ops.deployment import overrides_in
from batchfleet.ops.record_copy import copy_of_record
from batchfleet.ops.survey import read_worker
from batchfleet.router.view import served_versions
from batchfleet.wire.announcements import WorkerAnnouncement, read_router_announcement
from batchfleet.wire.codec import JSON, MSGPACK, decode_body, shallow_json, strict_shallow_json
from batchfleet.wire.deployment import Deployment
from batchfleet.wire.errors import RequestError, SettingsError, StoreError
from batchfleet.wire.limits import NESTING_MAX
from batchfleet.wire.reply import decode_reply

DEPTHS = (300, 1_100, 100_000)


def nested(depth, inner="1"):
    return "[" * depth + inner + "]" * depth


def nested_maps(depth):
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("make", [nested, nested_maps])
def test_the_deepest_that_is_read_can_be_written_again(make):
    """X10: at the limit, and one beyond it."""
    for read in (shallow_json, strict_shallow_json):
        assert orjson.dumps(read(make(NESTING_MAX).encode())).decode() == make(NESTING_MAX)
        with pytest.raises(ValueError, match="nests deeper"):
            read(make(NESTING_MAX + 1).encode())


@pytest.mark.parametrize("make", [nested, nested_maps])
@pytest.mark.parametrize("depth", DEPTHS)
def test_nothing_reads_what_nests_deeper(make, depth):
    """X10, T9: manifests, records, overrides, announcements, replies, inputs."""
    deep = make(depth)
    raw = deep.encode()
    manifest = json.loads(builtin_draft("echo").to_json())
    del manifest["parameters"]
    text = json.dumps(manifest)[:-1] + f', "parameters": {{"a": {deep}}}}}'
    with pytest.raises(StoreError):
        Manifest.from_json(text.encode())
    for content_type in (JSON, MSGPACK):
        with pytest.raises(RequestError):
            decode_body(raw if content_type == JSON else b"\x91" * depth + b"\x01", content_type)
    with pytest.raises(SettingsError):
        Deployment.from_hash("m", {"version:1": raw, "epoch": b"1", "nonce": b"n", "stable": b"1"})
    with pytest.raises(SettingsError):
        overrides_in({"set:max_batch_size": raw})
    with pytest.raises(SettingsError):
        copy_of_record({"version:1": raw}, "bf", [])
    assert WorkerAnnouncement.from_fields({"lanes": raw}).versions == {}
    assert read_router_announcement(b'{"models": ' + raw + b"}") == {}
    assert served_versions({"lanes": raw}) == []
    assert read_worker("w", {"lanes": raw}).versions == {}
    head = '{"id": "a", "tenant": "t", "status": "ok", "meta": '
    with pytest.raises(ValueError, match=r"."):
        decode_reply(f"{head}{deep}}}".encode())


@pytest.mark.parametrize("depth", DEPTHS)
def test_parameters_and_inputs_that_are_typed(depth, tmp_path):
    """X10: wrong usage or an error, never a trace."""
    deep = nested(depth)
    (tmp_path / "x.json").write_text(deep)
    url = ("--redis-url", "redis://127.0.0.1:1")
    for options in (
        ("x", "--parameters", f'{{"a": {deep}}}'),
        ("--input", str(tmp_path / "x.json")),
    ):
        result = CliRunner().invoke(main, ("infer", "m", *options, *url))
        assert result.exit_code in (1, 2)
        assert isinstance(result.exception, SystemExit), result.exception
