"""The copy of a deploy record in the store, there and back, and how a fleet differs from it."""

import json

import orjson
import pytest
from support.broker_wire import RECORD

from batchfleet.ops.record_copy import State, compare, copy_of_record, read_copy
from batchfleet.wire.canary import Canary, WorkerChoice
from batchfleet.wire.deployment import Deployment
from batchfleet.wire.errors import SettingsError

HASH = {
    "stable": b"1",
    "epoch": b"7",
    "nonce": b"ann@here:1:ab",
    "intake": b"open",
    "version:1": RECORD.to_wire(),
    "kept:0": orjson.dumps(
        {"epoch": 3, "record": {**json.loads(RECORD.to_wire()), "version": "0"}}
    ),
    "workers:1": WorkerChoice(frozenset({"w"}), excludes=True).to_wire(),
    "draining:1": b"[8]",
    "set:backlog": b"7",
    "set:max_padding": b'"auto"',
    "canary": Canary("1", 10, "s").to_wire(),
}


def copied(deploy_hash, **changes):
    plain = json.loads(copy_of_record(deploy_hash, "bf", ["default"])) | changes
    return read_copy("m", json.dumps(plain).encode())


def test_a_record_is_the_same_after_it_was_copied_and_read():
    found = copied(HASH)
    assert (found.model, found.namespace, found.tenants) == ("m", "bf", ["default"])
    assert Deployment.from_hash("m", found.deploy_hash) == Deployment.from_hash("m", HASH)
    assert set(found.deploy_hash) == set(HASH)
    assert compare(found, HASH).state is State.SAME


@pytest.mark.parametrize(
    ("phase", "after"),
    [
        ("shifting", "paused"),
        ("loading", "paused"),
        ("paused", "paused"),
        ("completed", "completed"),
    ],
)
def test_a_roll_comes_back_paused_unless_it_has_ended(phase, after):
    found = copied(HASH | {"roll": orjson.dumps({"phase": phase, "step": 2})})
    roll = json.loads(found.deploy_hash["roll"])
    assert (roll["phase"], roll["step"]) == (after, 2)


def test_a_roll_that_a_foreign_hand_wrote_keeps_no_record_from_being_copied():
    raw = copy_of_record(HASH | {"roll": b"\xff nonsense"}, "bf", [])
    assert b"nonsense" in raw
    read_copy("m", raw)


@pytest.mark.parametrize(
    ("there", "state", "lines"),
    [
        ({}, State.LOST, 9),
        ({"epoch": b"7"}, State.LOST, 9),
        (HASH | {"nonce": b"other", "epoch": b"9"}, State.SAME, 0),
        (HASH | {"set:backlog": b"9", "epoch": b"9"}, State.AHEAD, 1),
        (HASH | {"set:backlog": b"9", "epoch": b"6"}, State.BEHIND, 1),
        ({name: raw for name, raw in HASH.items() if name[:4] != "set:"}, State.AHEAD, 2),
        (HASH | {"epoch": b"5", "set:timeout_ms": b"9"}, State.BEHIND, 1),
        # A router has put back what it knew: that of epoch 4.
        (HASH | {"epoch": b"9", "nonce": b"restored:4:ab", "set:backlog": b"9"}, State.BEHIND, 1),
        (HASH | {"epoch": b"nonsense", "set:backlog": b"9"}, State.BEHIND, 1),
    ],
)
def test_a_fleet_differs_from_the_copy(there, state, lines):
    found = compare(copied(HASH), there)
    assert (found.state, len(found.lines)) == (state, lines)
    assert found.is_loss == (state in (State.LOST, State.BEHIND))


def test_the_difference_is_told_from_there_to_the_copy():
    found = compare(copied(HASH), HASH | {"set:backlog": b"9", "epoch": b"5", "canary": b"x"})
    assert found.lines == [
        'canary: x → {"version":"1","weight":10,"salt":"s"}',
        "set:backlog: 9 → 7",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"tenants": "default"},
        {"tenants": ["a b"]},
        {"namespace": 7},
        {"stable": "9"},
        {"intake": "ajar"},
        {"version:1": {"version": "2"}},
        {"epoch": 7},
    ],
)
def test_what_is_no_copy_of_a_record_is_refused(changes):
    with pytest.raises(SettingsError):
        copied(HASH, **changes)
