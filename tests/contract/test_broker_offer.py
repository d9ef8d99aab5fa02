"""Offer, configure, withdraw: versions beside the stable one, on every server."""

from dataclasses import replace

import pytest
from support.broker_wire import TENANT

from batchfleet.broker import fleet
from batchfleet.ops import deployment as operations
from batchfleet.ops.deployment import Operator
from batchfleet.wire.canary import Canary, WorkerChoice
from batchfleet.wire.deployment import Deployment, KeptVersion, Limits, Stamp, VersionRecord

SECOND = VersionRecord(version="2")


def streams(wire, record=SECOND):
    return fleet.queue_streams(wire.keys, record)


def deployment(wire):
    return Deployment.from_hash(wire.keys.model, wire.run(fleet.deploy_hash(wire.keys)))


def offer(wire, record=SECOND):
    return wire.run(fleet.offer(wire.keys, record, streams(wire, record), "nonce-2"))


def withdraw(wire, record=SECOND):
    return wire.run(fleet.withdraw(wire.keys, record.version, streams(wire, record)))


def test_an_offered_version_stands_beside_the_stable_one(wire):
    before = deployment(wire)
    assert offer(wire) == before.epoch + 1
    after = deployment(wire)
    assert after.stable == before.stable
    assert {*after.versions} == {*before.versions, "2"}
    assert after.nonce == "nonce-2"
    for stream in streams(wire):
        assert wire.pending(stream) == 0
    assert offer(wire) == after.epoch + 1  # again is harmless


def test_nothing_is_offered_to_a_model_that_is_not_deployed(wire):
    wire.run(fleet.undeploy(wire.keys, [], forced=True))
    assert offer(wire) == 0
    assert wire.ask("EXISTS", *streams(wire)) == 0


def test_a_version_is_withdrawn_once_it_has_no_work(wire):
    offer(wire)
    epoch = deployment(wire).epoch
    entry = wire.ask("XADD", streams(wire)[0], "*", "id", "a")
    assert withdraw(wire) == 1
    assert "2" in deployment(wire).versions
    wire.ask("XDEL", streams(wire)[0], entry)
    assert withdraw(wire) == 0
    assert (deployment(wire).epoch, "2" in deployment(wire).versions) == (epoch + 1, False)
    assert withdraw(wire) == 0
    assert deployment(wire).epoch == epoch + 1


def test_the_stable_version_is_not_withdrawn(wire):
    stable = deployment(wire).stable
    assert withdraw(wire, replace(SECOND, version=stable)) == fleet.IS_STABLE
    assert deployment(wire).stable == stable
    assert wire.send("a") is not None
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]


def test_a_version_is_not_withdrawn_while_a_draining_bucket_holds_work(wire):
    offer(wire)
    drained = wire.keys.queue("2", "normal", 512)
    wire.ask("HSET", wire.keys.deploy, "draining:2", "[512]")
    operator = Operator(executor=wire.executor, namespace=wire.keys.namespace, draw_nonce=str)
    entry = wire.ask("XADD", drained, "*", "id", "a")
    assert operations.withdraw(operator, wire.keys.model, SECOND.version) == 1
    wire.ask("XDEL", drained, entry)
    assert operations.withdraw(operator, wire.keys.model, SECOND.version) == 0
    assert wire.ask("HGET", wire.keys.deploy, "draining:2") is None


# Rolls.


def configure(wire, fields, stamp=None):
    return wire.run(fleet.configure(wire.keys, fields, [], "c", stamp))


@pytest.mark.parametrize("weight", [0, 10, 100])
def test_a_canary_is_not_withdrawn(wire, weight):
    offer(wire)
    configure(wire, {"canary": Canary("2", weight, "s").to_wire()})
    before = wire.run(fleet.deploy_hash(wire.keys))
    assert withdraw(wire) == fleet.IS_CANARY
    assert wire.run(fleet.deploy_hash(wire.keys)) == before
    configure(wire, {"canary": b""})
    assert withdraw(wire) == 0


@pytest.mark.parametrize("canary", [b"", b"{", b"5", b"null", b"[]", b'{"version": 2}', b"\xff"])
def test_a_canary_that_a_foreign_hand_wrote_keeps_no_version(wire, canary):
    offer(wire)
    wire.ask("HSET", wire.keys.deploy, "canary", canary)
    assert withdraw(wire) == 0


def test_a_version_that_is_withdrawn_may_be_kept_as_it_was_published(wire):
    second = replace(SECOND, environment="é", limits=Limits(buckets=(16, 32), backlog=7))
    offer(wire, second)
    choice = WorkerChoice(frozenset({"w1"}))
    configure(wire, {"set:backlog": b"5", "workers:2": choice.to_wire(), "draining:2": b"[64]"})
    epoch = deployment(wire).epoch
    assert wire.run(fleet.withdraw(wire.keys, "2", streams(wire, second), keep=True)) == 0
    after = deployment(wire)
    assert after.kept == {"2": KeptVersion(epoch + 1, second)}
    assert (after.epoch, after.workers, {*after.versions}) == (epoch + 1, {}, {"1"})
    assert wire.run(fleet.withdraw(wire.keys, "2", streams(wire, second), keep=True)) == 0
    assert deployment(wire) == after, "again is harmless"
    assert not wire.ask("HEXISTS", wire.keys.deploy, "draining:2")


@pytest.mark.parametrize("again", ["offer", "deploy"])
def test_a_kept_version_that_is_offered_again_is_not_kept_any_more(wire, again):
    offer(wire)
    wire.run(fleet.withdraw(wire.keys, "2", streams(wire), keep=True))
    if again == "offer":
        offer(wire)
    else:
        wire.run(fleet.deploy(wire.keys, SECOND, streams(wire), "n3", [TENANT]))
    assert "2" in deployment(wire).versions
    assert not wire.ask("HEXISTS", wire.keys.deploy, "kept:2")


def test_deploying_ends_a_canary(wire):
    offer(wire)
    only = WorkerChoice(frozenset({"w1"})).to_wire()
    configure(wire, {"canary": Canary("2", 10, "s").to_wire(), "workers:2": only})
    wire.run(fleet.deploy(wire.keys, SECOND, streams(wire), "n3", [TENANT]))
    found = deployment(wire)
    assert (found.stable, found.canary, found.workers) == ("2", None, {})


def test_a_switch_is_one_step(wire):
    offer(wire)
    configure(wire, {"canary": Canary("2", 50, "s").to_wire(), "roll": b"{}"})
    fields = {"stable": b"2", "canary": b"", "roll": b"", "kept:0": b""}
    assert configure(wire, fields, wire.stamp()) > 0
    found = deployment(wire)
    assert (found.stable, found.canary, found.roll) == ("2", None, b"")


def test_of_two_who_have_read_the_same_record_one_changes_it(wire):
    known = wire.stamp()
    epoch = configure(wire, {"roll": b"first"}, known)
    assert epoch == known.epoch + 1
    before = wire.run(fleet.deploy_hash(wire.keys))
    for stamp in (known, Stamp(epoch, "another"), Stamp(epoch + 1, "c"), Stamp()):
        assert configure(wire, {"roll": b"second"}, stamp) == fleet.CHANGED
    assert wire.run(fleet.deploy_hash(wire.keys)) == before
    assert configure(wire, {"roll": b"second"}, wire.stamp()) == epoch + 1


def test_of_two_who_deploy_by_the_same_record_one_does(wire):
    known = wire.stamp()
    command = fleet.deploy(wire.keys, SECOND, streams(wire), "c", ["acme"], known)
    assert wire.run(command) == known.epoch + 1
    before = wire.run(fleet.deploy_hash(wire.keys))
    third = replace(SECOND, version="3")
    for stamp in (known, Stamp(known.epoch + 1, "another"), Stamp()):
        command = fleet.deploy(wire.keys, third, streams(wire, third), "d", ["other"], stamp)
        assert wire.run(command) == fleet.CHANGED
    assert wire.run(fleet.deploy_hash(wire.keys)) == before
    assert not wire.ask("EXISTS", wire.keys.ingress("other"), *streams(wire, third))
    assert wire.run(fleet.tenants(wire.keys)) == ["acme", TENANT]
    wire.ask("DEL", wire.keys.ingress("acme"))


def test_streams_are_made_by_who_was_first_alone(wire):
    stale = Stamp(99, "another")
    command = fleet.configure(wire.keys, {"set:backlog": b"5"}, streams(wire), "c", stale)
    assert wire.run(command) == fleet.CHANGED
    assert not wire.ask("EXISTS", *streams(wire))
    offered = {"version:2": SECOND.to_wire(), "workers:2": WorkerChoice(frozenset()).to_wire()}
    command = fleet.configure(wire.keys, offered, streams(wire), "c", wire.stamp())
    assert wire.run(command) == 2
    assert not deployment(wire).loads("2", "w1"), "offered, and loaded by nobody yet"
    assert all(wire.pending(stream) == 0 for stream in streams(wire))


def test_nobody_changes_a_model_that_is_not_deployed(wire):
    known = wire.stamp()
    wire.run(fleet.undeploy(wire.keys, [], forced=True))
    assert configure(wire, {"roll": b"{}"}, known) == 0
    assert not wire.ask("EXISTS", wire.keys.deploy)
