"""Every script with a key of the wrong type in each of its places, and after its model is gone."""

import pytest
from support.broker_wire import INPUTS, RECORD
from support.script_scenes import (
    SCENES,
    SECOND,
    SOURCES,
    contents,
    fresh_wire,
    keys_of,
    offer_second,
    others_of,
)

from batchfleet.broker import fleet, membership, requests
from batchfleet.broker.commands import script
from batchfleet.broker.errors import RefusedError
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request

# What one of them is not foreign to, the other is.
KINDS = {"text": ("SET", "foreign"), "hash": ("HSET", "foreign", "1")}
# What is no part of a promise, or of one request alone, stops nothing.
HINTS = (":bell:", ":ttl", ":stats", ":worker:", ":journal", ":re:", ":blob:")
# It tells of one foreign key after it has mended all the others, as its header says.
MENDS_THE_REST = "mend"
# They make something for a model that may not be deployed: that is what they are for.
MAKES_MODELS = {"deploy"}
# It asks the server about rights.
TOUCHES_NO_KEY = {"rights"}


def spoil(wire, key, kind):
    command, *values = KINDS[kind]
    wire.ask("DEL", key)
    wire.ask(command, key, *values)


def test_every_script_has_a_scene(wire):
    shas = {scene.prepare(fresh_wire(wire, f"m{at}")).parts[1] for at, scene in numbered()}
    assert shas == {script(name).sha for name in SOURCES if name not in TOUCHES_NO_KEY}


def numbered():
    return enumerate(SCENES.values())


@pytest.mark.parametrize("name", SCENES)
def test_a_script_does_its_work_where_nothing_is_wrong(wire, name):
    assert SCENES[name].is_right(wire.run(SCENES[name].prepare(wire)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENES)
def test_a_script_that_meets_a_foreign_key_writes_nothing_or_is_done(wire, name, kind):
    scene = SCENES[name]
    for at in range(len(keys_of(scene.prepare(fresh_wire(wire, "places"))))):
        other = fresh_wire(wire, f"m{at}")
        command = scene.prepare(other)
        spoilt = keys_of(command)[at]
        spoil(other, spoilt, kind)
        before = contents(other)
        (result,) = other.executor.run_each([command])
        if isinstance(result, RefusedError):
            assert result.code in ("WRONGTYPE", "FENCED", "STALE"), (spoilt, result)
            assert name == MENDS_THE_REST or contents(other) == before, spoilt
        if any(part in spoilt for part in HINTS):
            assert scene.is_right(result), spoilt


LATE = sorted(SCENES.keys() - MAKES_MODELS)
# A router that was away until all has lapsed has forgotten the model, and mends nothing.
LAPSED = [name for name in LATE if name != MENDS_THE_REST]


@pytest.mark.parametrize(
    ("name", "lapsed"),
    [
        *(pytest.param(name, False, id=f"{name}-at_once") for name in LATE),
        *(pytest.param(name, True, id=f"{name}-lapsed") for name in LAPSED),
    ],
)
def test_a_script_that_comes_after_its_model_is_gone_makes_nothing_that_stays(wire, name, lapsed):
    command = SCENES[name].prepare(wire)
    assert wire.run(fleet.undeploy(wire.keys, others_of(wire), forced=True))[0]
    streams_of_second = [key for key in contents(wire)[1] if b":q:2:" in key]
    if streams_of_second:
        # Of a version that the record names, or that has just been withdrawn.
        wire.ask("DEL", *streams_of_second)
    assert contents(wire)[1] == set()
    if lapsed:
        left = contents(wire)[0]
        wire.ask("DEL", *left)
    (result,) = wire.executor.run_each([command])
    if isinstance(result, RefusedError):
        assert result.code in ("FENCED", "STALE", "NOGROUP"), result
    assert contents(wire)[1] == set()


# Models with more of anything than Lua can unpack.

MANY = 9_000


@pytest.mark.slow
def test_a_model_of_many_tenants_is_deployed_mended_and_undeployed(wire):
    tenants = [f"t{number}" for number in range(MANY)]
    streams = fleet.queue_streams(wire.keys, RECORD)
    assert wire.run(fleet.deploy(wire.keys, RECORD, streams, "n2", tenants)) == 2
    assert wire.ask("SCARD", wire.keys.tenants) == MANY + 1
    assert wire.run(fleet.configure(wire.keys, many_fields(), [], "n3")) == 3
    known = wire.run(fleet.deploy_hash(wire.keys))
    ingress = [wire.keys.ingress(tenant) for tenant in tenants]
    wire.ask("DEL", wire.keys.deploy, wire.keys.tenants, *ingress)
    assert wire.run(fleet.mend(wire.keys, known, tenants, streams, "n")) == fleet.RESTORED
    assert wire.ask("SCARD", wire.keys.tenants) == MANY
    assert wire.run(fleet.deploy_hash(wire.keys)).keys() == known.keys()
    assert wire.run(requests.submit(wire.keys, tenants[-1], Request(id="a", inputs=INPUTS)))
    removed = [*others_of(wire), *ingress]
    assert wire.run(fleet.undeploy(wire.keys, removed, forced=True)) == (1, 0)
    assert contents(wire)[1] == set()


def many_fields():
    """Of a record in which an operator has kept notes."""
    return {f"note:{number}": b"1" for number in range(MANY)}


# What stays for a while, and is kept where it is wanted again.


def ends(wire, *keys):
    return [wire.ask("PTTL", key) for key in keys]


def test_a_model_that_is_deployed_again_keeps_its_workers_letters_and_journal(wire):
    wire.run(SCENES["finish"].prepare(wire))
    keys = wire.keys
    wire.join("w2")
    wire.run(membership.leave(keys, "w2"))
    kept = (keys.workers, keys.lost, keys.journal, keys.dead)
    wire.ask("XADD", keys.journal, "*", "line", "x")
    wire.ask("XADD", keys.dead, "*", "id", "x")
    assert wire.run(fleet.undeploy(keys, others_of(wire), forced=True, stamp=wire.stamp()))[0]
    assert all(0 < end <= fleet.UNDEPLOYED_MARK_MS for end in ends(wire, *kept[:2]))
    assert all(0 < end <= fleet.LEFT_BEHIND_MS for end in ends(wire, *kept[2:]))
    wire.run(fleet.deploy(keys, RECORD, fleet.queue_streams(keys, RECORD), "n2", ["default"]))
    assert ends(wire, *kept) == [-1] * 4
    assert wire.run(membership.beat(keys, "w1", 60_000, {})) == 2, "nobody has to start over"


@pytest.mark.parametrize("change", ["configure", "withdraw", "remove_bucket", "deploy again"])
def test_a_model_that_another_has_changed_is_not_undeployed_by_what_was_read(wire, change):
    if change == "deploy again":
        known = wire.stamp()
        wire.run(fleet.undeploy(wire.keys, others_of(wire), forced=True))
        wire.run(fleet.deploy(wire.keys, SECOND, [], "again", ["default"]))
        assert wire.stamp().epoch == known.epoch
    else:
        command = SCENES[change].prepare(wire)
        known = wire.stamp()
        wire.run(command)
    before = contents(wire)
    changed = fleet.undeploy(wire.keys, others_of(wire), forced=True, stamp=known)
    assert wire.run(changed) == (fleet.CHANGED, 0)
    assert contents(wire) == before


def test_the_streams_of_a_withdrawn_version_end_unless_it_is_offered_again(wire):
    streams = fleet.queue_streams(wire.keys, SECOND)
    assert wire.run(SCENES["withdraw"].prepare(wire)) == 0
    assert all(end > 0 for end in ends(wire, *streams))
    assert wire.run(offer_second(wire))
    assert ends(wire, *streams) == [-1] * len(streams)


def test_a_join_before_the_model_is_deployed_leaves_no_trace(wire):
    keys = ModelKeys(wire.keys.namespace, "never")
    assert not wire.run(membership.join(keys, "w1", 60_000, {"host": "h"}))
    assert not wire.ask("EXISTS", keys.workers, keys.worker("w1"))
