from dataclasses import replace

import orjson
import pytest

from batchfleet.models.files import FileEntry
from batchfleet.models.manifest import MANIFEST_BYTES_MAX, Golden, Manifest
from batchfleet.wire.deployment import Deployment, Limits
from batchfleet.wire.errors import StoreError
from batchfleet.wire.signature import Signature, TensorSpec

FULL = Manifest(
    model="m",
    version="1.2",
    runtime="echo",
    files={"a/weights.bin": FileEntry("0" * 64, 3)},
    environment="/opt/envs/other",
    signature=Signature(
        inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 3), lowest=0.0, highest=1.0),),
        outputs=(TensorSpec(name="y", datatype="BF16", finite=False),),
    ),
    limits=Limits(max_length=64, buckets=(16, 64), truncate="end"),
    bytes_per_token=4.5,
    parameters={"a": [1, {"b": None}]},
    device="cuda",
    golden=(Golden(inputs={"text": ["x"]}, outputs="sha256:00", tolerance=0.5),),
    code_sha256="1" * 64,
)


def test_a_manifest_survives_json():
    assert Manifest.from_json(FULL.to_json()) == FULL


def test_only_three_keys_are_required_and_limits_may_be_partial():
    manifest = Manifest.from_json(
        b'{"model": "m", "version": "1", "runtime": "echo", "limits": {"max_length": 7}}'
    )
    assert manifest.limits == Limits(max_length=7)


def test_every_fault_is_named_at_once():
    wire = orjson.loads(FULL.to_json()) | {
        "version": "../1",
        "colour": "red",
        "device": "tpu",
        "bytes_per_token": -1,
        "limits": {"max_batch_size": 0, "speed": 1},
        "signature": {"inputs": [{"name": "x", "datatype": "FP33", "shpe": []}]},
        "files": {"../x": {"sha256": "no", "size_bytes": 1}},
        "golden": [{"inputs": 1}],
        "parameters": [],
        "code_sha256": 5,
        "environment": 7,
    }
    del wire["runtime"]
    with pytest.raises(StoreError) as caught:
        Manifest.from_json(orjson.dumps(wire))
    for part in (
        "unknown key 'colour'", "runtime is missing", "version: '../1'", "device: 'tpu'",
        "bytes_per_token", "max_batch_size", "speed", "FP33", "'shpe'", "'../x'",
        "64 hex characters", "golden: example 0", "parameters", "code_sha256", "environment",
    ):  # fmt: skip
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/../b", "a//b", "", ".", "a/.hidden", "a\\b", "manifest.json", "a\n",
     "x" * 600, "a/", "..", "a/b..c"],
)  # fmt: skip
def test_hostile_file_names_are_refused(name):
    wire = orjson.loads(FULL.to_json())
    wire["files"] = {name: {"sha256": "0" * 64, "size_bytes": 1}}
    with pytest.raises(StoreError, match="not a plain relative path"):
        Manifest.from_json(orjson.dumps(wire))


@pytest.mark.parametrize(("shape", "hint"), [([2], "[-1, 2]"), ([4, 3], "[-1, 4, 3]")])
def test_a_shape_without_the_axis_of_rows_is_refused_with_a_hint(shape, hint):
    signature = {"inputs": [{"name": "x", "datatype": "FP32", "shape": shape}]}
    wire = orjson.loads(FULL.to_json()) | {"signature": signature}
    with pytest.raises(StoreError, match="counts rows") as caught:
        Manifest.from_json(orjson.dumps(wire))
    assert f"did you mean {hint}?" in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(raw):
    with pytest.raises(StoreError, match="a manifest must be"):
        Manifest.from_json(raw)


def test_an_oversized_manifest_is_refused_before_it_is_parsed():
    with pytest.raises(StoreError, match="has more"):
        Manifest.from_json(b" " * (MANIFEST_BYTES_MAX + 1))


def test_parameters_must_be_plain_json():
    with pytest.raises(StoreError, match="not plain JSON"):
        replace(FULL, parameters={"x": object()}).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"a/weights.bin": FileEntry("2" * 64, 3)}},
        {"runtime": "noop"},
        {"parameters": {}},
        {"code_sha256": "3" * 64},
    ],
)
def test_the_lineage_changes_with_what_the_answers_depend_on(change):
    assert replace(FULL, **change).lineage != FULL.lineage


def test_the_lineage_does_not_depend_on_names_limits_or_order():
    other = replace(
        FULL, model="other", version="9", limits=Limits(), parameters={"a": FULL.parameters["a"]}
    )
    assert other.lineage == FULL.lineage
    assert len(FULL.lineage) == 16
    assert int(FULL.lineage, 16)


def test_the_deploy_record_carries_what_router_and_worker_need():
    raw = {"stable": b"1.2", "version:1.2": FULL.record().to_wire()}
    deployed = Deployment.from_hash("m", raw)
    assert deployed is not None
    record = deployed.versions["1.2"]
    assert record == FULL.record()
    assert (record.lineage, record.limits, record.signature) == (
        FULL.lineage,
        FULL.limits,
        FULL.signature,
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**64, {1: 2}, {1}], ids=repr)
def test_parameters_that_json_lacks_are_not_published(value):
    manifest = Manifest(model="m", version="1", runtime="echo", parameters={"a": [value]})
    with pytest.raises(StoreError, match="not plain JSON"):
        manifest.to_json()


@pytest.mark.parametrize(
    "text",
    ['{"model": "m", "model": "n"}', '{"parameters": {"a": 18446744073709551616}}', "[1e400]"],
)
def test_a_manifest_means_what_it_says(text):
    with pytest.raises(StoreError, match="a manifest must be JSON"):
        Manifest.from_json(text.encode())
