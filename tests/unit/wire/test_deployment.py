import json

import pytest

from batchfleet.wire.canary import Canary
from batchfleet.wire.deployment import (
    LIMIT_ROWS,
    Deployment,
    Limits,
    VersionRecord,
    check_limit,
    limits_from_wire,
)
from batchfleet.wire.errors import SettingsError
from batchfleet.wire.signature import Signature, TensorSpec

TENSOR = {"name": "x", "datatype": "FP32"}


def record(**changes):
    return json.dumps({"version": "1", "limits": {}, **changes}).encode()


def raw_hash(**changes):
    return {"stable": b"1", "version:1": record(), "epoch": b"7", "nonce": b"n", **changes}


def test_a_hash_is_read_with_the_overrides_laid_over():
    raw = raw_hash(**{
        "version:1": record(limits={"max_batch_size": 8, "backlog": 5}, device="cpu"),
        "version:2": record(version="2"),
        "set:backlog": b"99",
        "set:truncate": b'"end"',
        "intake": b"hold",
    })  # fmt: skip
    found = Deployment.from_hash("m", raw)
    assert found is not None
    assert (found.model, found.epoch, found.nonce, found.stable) == ("m", 7, "n", "1")
    assert found.intake == "hold"
    one, two = found.versions["1"], found.versions["2"]
    assert (one.limits.max_batch_size, one.limits.backlog, one.limits.truncate) == (8, 99, "end")
    assert (two.limits.max_batch_size, two.limits.backlog) == (0, 99)
    assert one.device == "cpu"
    assert found.overrides == {"backlog": 99, "truncate": "end"}


def test_a_model_that_is_not_deployed_has_no_deployment():
    assert Deployment.from_hash("m", {}) is None


def test_what_a_newer_release_wrote_is_passed_over():
    raw = raw_hash(**{
        "version:1": record(limits={"novel": 5}, novel={}),
        "set:novel": b"[]",
        "novel": b"\xff",
    })  # fmt: skip
    found = Deployment.from_hash("m", raw)
    assert found is not None
    assert found.versions["1"].limits == Limits()


@pytest.mark.parametrize(
    "changes",
    [
        {"stable": b"2"},
        {"stable": b"\xff"},
        {"epoch": b""},
        {"epoch": b"-1"},
        {"epoch": b"9" * 5000},
        {"intake": b"ajar"},
        {"intake": b"\xff"},
        {"set:backlog": b"{"},
        {"set:backlog": b"0"},
        {"set:backlog": b"true"},
        {"set:backlog": b'"5"'},
        {"set:buckets": b"[3, 2]"},
        {"version:1": b""},
        {"version:1": b"\xff\xfe"},
        {"version:1": b"[]"},
        {"version:1": b"5"},
        {"version:1": b"{}"},
        {"version:1": record(version=5)},
        {"version:1": record(version="2")},
        {"version:1": record(limits=5)},
        {"version:1": record(limits={"max_padding": 0})},
        {"version:1": record(runtime=None)},
        {"version:1": record(bytes_per_token="4")},
        {"version:1": record(bytes_per_token=-1)},
        {"version:1": record(signature=[])},
        {"version:1": record(signature={"inputs": 5})},
        {"version:1": record(signature={"inputs": [5]})},
        {"version:1": record(signature={"inputs": [{"name": "x"}]})},
        {"version:1": record(signature={"inputs": [{**TENSOR, "shape": 5}]})},
        {"version:1": record(signature={"inputs": [{**TENSOR, "range": "ab"}]})},
        {"version:1": record(signature={"inputs": [{**TENSOR, "range": [1]}]})},
        {"canary": b""},
        {"canary": b"5"},
        {"canary": b'{"weight": 5}'},
        {"canary": b'{"version": "2", "weight": 5}'},
        {"canary": b'{"version": "1"}'},
        {"canary": b'{"version": "1", "weight": -1}'},
        {"canary": b'{"version": "1", "weight": 100.5}'},
        {"canary": b'{"version": "1", "weight": true}'},
        {"canary": b'{"version": "1", "weight": "5"}'},
        {"canary": b'{"version": "1", "weight": 5, "salt": 5}'},
        {"kept:3": b""},
        {"kept:3": b'{"epoch": 5}'},
        {"kept:3": b'{"epoch": 5, "record": {}}'},
        {"kept:3": b'{"epoch": 5, "record": {"version": "2"}}'},
        {"kept:3": b'{"epoch": -1, "record": {"version": "3"}}'},
        {"kept:3": b'{"epoch": true, "record": {"version": "3"}}'},
        {"kept:3": b'{"record": {"version": "3"}}'},
        {"workers:1": b""},
        {"workers:1": b"[]"},
        {"workers:1": b"{}"},
        {"workers:1": b'{"only": "w1"}'},
        {"workers:1": b'{"only": [5]}'},
        {"workers:1": b'{"only": [""]}'},
        {"workers:1": b'{"only": [], "except": []}'},
    ],
    ids=str,
)  # fmt: skip
def test_garbage_in_the_hash_is_a_settings_error(changes):
    assert Deployment.from_hash("m", raw_hash()) is not None
    with pytest.raises(SettingsError):
        Deployment.from_hash("m", raw_hash(**changes))


@pytest.mark.parametrize("name", LIMIT_ROWS)
def test_limits_have_a_range_with_both_ends(name):
    row = LIMIT_ROWS[name]
    assert check_limit(name, row.lowest) == row.lowest
    assert check_limit(name, row.highest) == row.highest
    default = getattr(Limits(), name)
    assert row.lowest <= default <= row.highest or (default == 0 and row.or_auto)
    for outside in (row.lowest - 1, row.highest + 1, float("nan"), float("inf"), True, "5", None):
        with pytest.raises(SettingsError, match=name):
            check_limit(name, outside)


@pytest.mark.parametrize("name", LIMIT_ROWS)
def test_auto_is_a_value_of_the_limits_that_workers_find(name):
    if not LIMIT_ROWS[name].or_auto:
        with pytest.raises(SettingsError, match=name):
            check_limit(name, "auto")
        return
    assert check_limit(name, "auto") == 0
    assert Limits().to_wire()[name] == "auto"
    assert limits_from_wire(Limits().to_wire()) == Limits()
    with pytest.raises(SettingsError, match="or 'auto'"):
        check_limit(name, 0)


def test_whole_limits_take_no_fractions():
    with pytest.raises(SettingsError, match="whole"):
        check_limit("backlog", 1.5)
    assert check_limit("max_padding", 1.5) == 1.5
    assert type(check_limit("backlog", 2.0)) is int


@pytest.mark.parametrize("buckets", [[], [2, 1], [1, 1], [-1], [True], [1.5], "12", None, [1] * 65])
def test_buckets_that_are_refused(buckets):
    with pytest.raises(SettingsError, match="buckets"):
        check_limit("buckets", buckets)


def test_an_unknown_limit_is_answered_with_the_known_ones():
    with pytest.raises(SettingsError, match="max_batch_size"):
        limits_from_wire({"batch_size": 5})


def test_a_record_survives_the_wire():
    signature = Signature(
        inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 3), lowest=0.0, finite=False),),
        outputs=(TensorSpec(name="y", datatype="BYTES"),),
    )
    before = VersionRecord(
        version="1", runtime="echo", environment="e", device="cpu", lineage="l",
        bytes_per_token=4.5, signature=signature, limits=Limits(buckets=(16, 64)),
    )  # fmt: skip
    assert VersionRecord.from_wire(before.to_wire(), {}) == before


def test_a_length_is_estimated_from_bytes():
    rule = VersionRecord(version="1", bytes_per_token=4.0, limits=Limits(buckets=(8, 16)))
    body = b'{"text": ["' + b"x" * 40 + b'"]}'
    assert rule.length_of(len(body), 1) in {10, 11}
    assert rule.length_of(0, 1) == 1
    assert [rule.bucket_of(length) for length in (1, 8, 9, 16, 999)] == [8, 8, 16, 16, 16]
    assert VersionRecord(version="1").length_of(10_000, 1) == 1


@pytest.mark.parametrize(
    "part",
    [{"shape": [-1, 2.7]}, {"shape": [-1, "3"]}, {"shape": [-1, True]}, {"shape": [-1, 10**9]},
     {"shape": [-2]}, {"range": [float("nan"), None]}, {"range": ["0", None]}, {"range": [2, 1]},
     {"range": [None, float("inf")]}, {"range": [-(10**400), None]}],
    ids=str,
)  # fmt: skip
def test_numbers_of_a_signature_have_a_range(part):
    with pytest.raises(SettingsError, match="signature"):
        TensorSpec.from_wire({"name": "x", "datatype": "FP32", **part})


@pytest.mark.parametrize("value", [10**5000, "9" * 5000, [1] * 9999, float("nan")], ids=type)
def test_a_hostile_limit_has_a_short_message(value):
    for name in ("backlog", "buckets", "truncate", "input_prefixes"):
        with pytest.raises(SettingsError) as caught:
            check_limit(name, value)
        assert len(str(caught.value)) < 300


# Rolls.


def test_what_a_roll_writes_is_read():
    raw = raw_hash(**{
        "version:2": record(version="2"),
        "set:backlog": b"99",
        "canary": b'{"version": "2", "weight": 10, "salt": "ab12"}',
        "kept:3": b'{"epoch": 17, "record": ' + record(version="3") + b"}",
        "workers:2": b'{"only": ["w1", "w2"]}',
        "roll": b"\xff anything",
    })  # fmt: skip
    found = Deployment.from_hash("m", raw)
    assert found is not None
    assert found.canary == Canary("2", 10.0, "ab12")
    assert {*found.versions} == {"1", "2"}
    assert {*found.kept} == {"3"}
    assert (found.kept["3"].epoch, found.kept["3"].record.version) == (17, "3")
    assert found.kept["3"].record.limits == Limits(), "as published, without the overrides"
    assert found.roll == b"\xff anything"
    assert [found.loads("2", worker) for worker in ("w1", "w2", "w3")] == [True, True, False]
    assert found.loads("1", "w3")
    assert not found.loads("3", "w1")
    assert not found.loads("4", "w1")


def test_a_record_without_a_roll_has_none():
    found = Deployment.from_hash("m", raw_hash())
    assert found is not None
    assert (found.canary, found.kept, found.workers, found.roll) == (None, {}, {}, b"")
    assert found.version_for("a") == "1"
    assert found.loads("1", "w1")


def test_a_version_that_is_offered_is_not_kept_as_well():
    found = Deployment.from_hash("m", raw_hash(**{"kept:1": b"whatever was left behind"}))
    assert found is not None
    assert found.kept == {}


@pytest.mark.parametrize(("weight", "is_default"), [(0, False), (0.5, True), (100, True)])
def test_requests_without_a_version_go_to_stable_and_to_a_canary_with_weight(weight, is_default):
    raw = raw_hash(**{"version:2": record(version="2"), "canary": Canary("2", weight).to_wire()})
    found = Deployment.from_hash("m", raw)
    assert found is not None
    assert (found.is_default("1"), found.is_default("2")) == (True, is_default)
    assert not found.is_default("3")
    goes_to = {found.version_for(f"id-{number}") for number in range(2000)}
    assert goes_to == {0: {"1"}, 0.5: {"1", "2"}, 100: {"2"}}[weight]
