"""Plans of deploying; what the scripts do with them is in tests/integration/server/test_cli.py."""

import orjson
import pytest
from support.broker_wire import wired
from support.script_scenes import contents

from batchfleet.broker import fleet
from batchfleet.ops.deployment import (
    Operator,
    draining_fields,
    keys_to_remove,
    overrides_in,
    require_deployment,
    streams_of,
    undeploy,
    with_changes,
)
from batchfleet.ops.model_limits import limits_in_force, parse_overrides, what_keeps_batches_small
from batchfleet.ops.record_copy import copy_of_record
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import CallerError, ErrorKind, SettingsError
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("bf", "m")


def record_of(version="1", buckets=(16, 64), **limits):
    return VersionRecord(version=version, limits=Limits(buckets=buckets, **limits))


def hash_of(*records, **overrides):
    return {
        "stable": records[0].version.encode(),
        "epoch": b"3",
        **{f"version:{record.version}": record.to_wire() for record in records},
        **{f"set:{name}": orjson.dumps(value) for name, value in overrides.items()},
    }


def test_streams_are_those_of_the_versions_own_buckets():
    streams = streams_of(KEYS, record_of(), {})
    assert len(streams) == 6  # three priorities, two buckets
    assert streams[0] == "bf:{m}:q:1:high:16"


def test_overridden_buckets_get_streams_in_place_of_the_own_ones():
    streams = streams_of(KEYS, record_of(), {"buckets": [16, 32]})
    assert {stream.rpartition(":")[2] for stream in streams} == {"16", "32"}
    assert len(streams) == len(set(streams)) == 6


def changed(before, **changes):
    """The fields about draining that these changes of limits write."""
    after = with_changes(before, changes)
    return draining_fields(require_deployment("m", before), require_deployment("m", after))


def test_buckets_that_go_out_of_service_drain_and_those_that_come_back_do_not():
    before = hash_of(record_of("1"), record_of("2", buckets=(8,)))
    assert changed(before, backlog=5) == {}
    fields = changed(before, buckets=[16, 32])
    assert fields == {"draining:1": b"[64]", "draining:2": b"[8]"}
    later = {**with_changes(before, {"buckets": [16, 32]}), **fields}
    assert require_deployment("m", later).versions["1"].edges == (16, 32, 64)
    assert changed(later, buckets=[48]) == {
        "draining:1": b"[16,32,64]",
        "draining:2": b"[8,16,32]",
    }
    assert changed(later, buckets=None) == {"draining:1": b"[32]", "draining:2": b"[16,32]"}
    assert changed(later, buckets=[8, 16, 32, 64]) == {"draining:1": b"", "draining:2": b""}


def test_changes_are_laid_over_the_hash_and_taken_back():
    before = hash_of(record_of(), backlog=7, timeout_ms=500)
    after = with_changes(before, {"backlog": 9, "timeout_ms": None})
    assert overrides_in(before) == {"backlog": 7, "timeout_ms": 500}
    assert overrides_in(after) == {"backlog": 9}
    assert after["version:1"] == before["version:1"]


def test_removal_covers_all_versions_tenants_and_overridden_buckets():
    deploy_hash = hash_of(record_of("1"), record_of("2", buckets=(8,)), buckets=[32])
    deploy_hash |= {"draining:1": b"[16,64]", "draining:2": b"[8]"}
    removed = keys_to_remove(KEYS, deploy_hash, ["default", "acme"])
    assert {"bf:{m}:bell:1", "bf:{m}:bell:2", "bf:{m}:in:default", "bf:{m}:in:acme"} < set(removed)
    streams = {key.split(":q:")[1] for key in removed if ":q:" in key and ":low:" in key}
    assert streams == {"1:low:16", "1:low:64", "1:low:32", "2:low:8", "2:low:32"}


def test_a_model_without_a_hash_is_unknown():
    with pytest.raises(CallerError) as raised:
        require_deployment("m", {})
    assert raised.value.kind is ErrorKind.UNKNOWN_MODEL


def test_assignments_are_read_in_the_type_of_their_limit():
    changes = parse_overrides(["backlog=5", "max_padding=1.5", "buckets=16,32", "truncate=end"])
    assert changes == {"backlog": 5, "max_padding": 1.5, "buckets": (16, 32), "truncate": "end"}


def test_an_empty_value_takes_an_override_back():
    assert parse_overrides(["backlog="]) == {"backlog": None}


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (["backlog"], "key=value"),
        (["backlog=1", "backlog=2"], "key=value"),
        (["nothing=1"], "unknown limit"),
        (["nothing="], "unknown limit"),
        (["backlog=0"], "1 to"),
        (["backlog=many"], "not a number"),
        (["backlog=1.5"], "whole number"),
        (["max_padding=nan"], "1 to"),
        (["buckets=32,16"], "rising"),
        (["buckets=16,,32"], "rising"),
        (["truncate=middle"], "refuse"),
    ],
)
def test_a_wrong_assignment_is_refused_with_what_is_allowed(assignments, told):
    with pytest.raises(SettingsError, match=told):
        parse_overrides(assignments)


def test_the_copy_holds_the_whole_record():
    raw = copy_of_record(hash_of(record_of(), backlog=7), "bf", ["default"])
    copy = orjson.loads(raw)
    assert copy["stable"] == "1"
    assert copy["set:backlog"] == 7
    assert copy["version:1"]["limits"]["buckets"] == [16, 64]
    assert (copy["namespace"], copy["tenants"]) == ("bf", ["default"])


def test_limits_show_manifest_override_and_what_holds():
    limits = {item.name: item for item in limits_in_force("m", hash_of(record_of(), backlog=7))}
    assert set(limits) == set(Limits().to_wire())
    backlog, buckets = limits["backlog"], limits["buckets"]
    assert (backlog.manifest, backlog.override, backlog.in_force) == (10_000, 7, 7)
    assert (buckets.manifest, buckets.override, buckets.in_force) == ([16, 64], None, [16, 64])
    assert all(item.meaning for item in limits.values())


# Undeploying while others change the model.


class Meddling:
    """An executor before whose undeploying somebody offers a version, so many times."""

    def __init__(self, wire, times):
        self.wire, self.times = wire, times

    def run(self, command):
        if command.script is not None and command.script.name == "undeploy" and self.times:
            self.times -= 1
            other = record_of(f"other{self.times}")
            streams = streams_of(self.wire.keys, other, {})
            self.wire.run(fleet.offer(self.wire.keys, other, streams, f"nonce{self.times}"))
        return self.wire.run(command)


def undeploy_beside(times):
    with wired(MemoryBroker(MemoryServer()), "n") as wire:
        executor = Meddling(wire, times)
        operator = Operator(executor=executor, namespace="n", draw_nonce=str)
        assert undeploy(operator, "m") == 0
        return contents(wire)[1]


@pytest.mark.parametrize("times", [0, 1, 3])
def test_what_others_add_meanwhile_goes_as_well(times):
    assert undeploy_beside(times) == set()


def test_whoever_changes_a_model_all_the_time_is_reported():
    with pytest.raises(SettingsError, match="somebody else is changing m"):
        undeploy_beside(1000)


@pytest.mark.parametrize(
    ("limits", "length", "rows"),
    [
        ({}, 4096, None),
        ({"max_batch_tokens": 1024, "max_batch_size": 64}, 28, 36),
        ({"max_batch_tokens": 1024}, 32, None),
        ({"max_batch_tokens": 1024}, 256, 4),
        ({"max_batch_tokens": 10}, 256, 1),
        ({"max_batch_tokens": 10}, 0, 10),
    ],
)
def test_a_limit_that_keeps_batches_small_is_named(limits, length, rows):
    warning = what_keeps_batches_small(Limits(**limits), length)
    assert bool(warning) == (rows is not None)
    assert rows is None or f" lets {rows} of " in warning
