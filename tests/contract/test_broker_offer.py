"""Offer and withdraw: a version beside the stable one, on every server."""

from dataclasses import replace

from support.broker_wire import TENANT

from batchfleet.broker import fleet
from batchfleet.ops import deployment as operations
from batchfleet.ops.deployment import Operator
from batchfleet.wire.deployment import Deployment, VersionRecord

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
    assert withdraw(wire, replace(SECOND, version=stable)) == -1
    assert deployment(wire).stable == stable
    assert wire.send("a") is not None
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]


def test_a_version_is_not_withdrawn_while_a_draining_bucket_holds_work(wire):
    offer(wire)
    drained = wire.keys.queue("2", "normal", 512)
    wire.ask("HSET", wire.keys.deploy, "draining:2", "[512]")
    operator = Operator(executor=wire.executor, namespace=wire.keys.namespace, draw_nonce=str)
    entry = wire.ask("XADD", drained, "*", "id", "a")
    assert operations.withdraw(operator, wire.keys.model, SECOND) == 1
    wire.ask("XDEL", drained, entry)
    assert operations.withdraw(operator, wire.keys.model, SECOND) == 0
    assert wire.ask("HGET", wire.keys.deploy, "draining:2") is None
