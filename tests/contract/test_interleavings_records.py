"""Programs that sleep through a change of the deploy record, and wake up.

Each test is an order of single steps, as a frozen process takes them: what it had read, what others
did meanwhile, and its next command.
"""

import pytest
from support.broker_wire import RECORD, TENANT

from batchfleet.broker import fleet, membership, requests
from batchfleet.broker.errors import StaleRecordError
from batchfleet.broker.requests import Accepted
from batchfleet.ops import deployment
from batchfleet.ops.deployment import Operator, keys_to_remove
from batchfleet.wire.deployment import VersionRecord

SECOND = VersionRecord(version="2", limits=RECORD.limits)


@pytest.fixture
def operator(wire):
    return Operator(
        executor=wire.executor, namespace=wire.keys.namespace, draw_nonce=iter("abcdef").__next__
    )


def undeploy(wire):
    others = keys_to_remove(wire.keys, wire.run(fleet.deploy_hash(wire.keys)), [TENANT])
    assert wire.run(fleet.undeploy(wire.keys, others, forced=True))[0]


def test_a_router_that_slept_through_a_pause_accepts_nothing(wire, operator):
    entry, seen = wire.enter("a"), wire.stamp()
    deployment.set_intake(operator, "m", "refuse")
    with pytest.raises(StaleRecordError):
        wire.accept(wire.item("a", entry), stamp=seen)
    assert wire.ask("ZCARD", wire.keys.due) == 0


def test_a_router_that_slept_through_an_undeployment_recreates_nothing(wire):
    entry, seen = wire.enter("a"), wire.stamp()
    undeploy(wire)
    with pytest.raises(StaleRecordError):
        wire.accept(wire.item("a", entry), stamp=seen)
    for stream in (wire.ingress, wire.queue(), wire.keys.due, wire.bell):
        assert not wire.ask("EXISTS", stream), stream


def test_a_router_that_slept_through_a_redeployment_accepts_nothing(wire):
    """The model is there again, with the same epoch; what was submitted before was forgotten."""
    entry, seen = wire.enter("a"), wire.stamp()
    undeploy(wire)
    streams = fleet.queue_streams(wire.keys, RECORD)
    assert wire.run(fleet.deploy(wire.keys, RECORD, streams, "again", [TENANT])) == seen.epoch
    with pytest.raises(StaleRecordError):
        wire.accept(wire.item("a", entry), stamp=seen)
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert wire.send("a") is Accepted.OK


def test_a_router_that_slept_places_nothing_where_a_version_was_withdrawn(wire, operator):
    """Its streams are there still, and nobody reads them."""
    deployment.offer(operator, wire.run(fleet.deployment(wire.keys)), SECOND)
    deployment.deploy(operator, "m", SECOND, [TENANT])
    entry, seen = wire.enter("a"), wire.stamp()
    assert deployment.withdraw(operator, "m", RECORD.version) == 0
    with pytest.raises(StaleRecordError):
        wire.accept(wire.item("a", entry), stamp=seen)
    assert wire.ask("XLEN", wire.queue()) == 0


def test_a_router_that_slept_promotes_nothing_where_a_version_was_withdrawn(wire, operator):
    deployment.deploy(operator, "m", SECOND, [TENANT])
    wire.open("a", delay_ms=60_000)
    wire.be_ripe()
    seen = wire.stamp()
    assert deployment.withdraw(operator, "m", RECORD.version) == 0
    with pytest.raises(StaleRecordError):
        wire.promote(stamp=seen)
    assert wire.parked() == (1, 1)


def test_a_worker_that_slept_through_a_pause_takes_nothing(wire, operator):
    wire.open("a")
    wire.join()
    seen = wire.stamp()
    deployment.set_intake(operator, "m", "hold")
    with pytest.raises(StaleRecordError):
        wire.take(stamp=seen)
    deployment.set_intake(operator, "m", "open")
    with pytest.raises(StaleRecordError):
        wire.take(stamp=seen)
    assert [work.id for work in wire.take()] == ["a"]


def test_a_worker_that_slept_takes_nothing_of_a_version_that_was_redeployed(wire):
    """Under the name that it has loaded there is other code by now."""
    wire.join()
    seen = wire.stamp()
    undeploy(wire)
    other = VersionRecord(version="1", lineage="other", limits=RECORD.limits)
    streams = fleet.queue_streams(wire.keys, other)
    assert wire.run(fleet.deploy(wire.keys, other, streams, "again", [TENANT])) == seen.epoch
    wire.open("a")
    with pytest.raises(StaleRecordError):
        wire.take(stamp=seen)
    assert wire.pending(wire.queue()) == 0
    assert [work.id for work in wire.take()] == ["a"]


def test_a_worker_that_slept_through_a_pause_takes_nothing_over(wire, operator):
    wire.open("a")
    wire.take(wire.join("gone"))
    wire.join("heir")
    wire.run(membership.leave(wire.keys, "gone"))
    seen = wire.stamp()
    deployment.set_intake(operator, "m", "hold")
    with pytest.raises(StaleRecordError):
        wire.run(requests.recover(wire.keys, "heir", seen, "gone", wire.queue(), 10))
    assert wire.run(requests.reread_work(wire.queue(), "heir", "0", 10)) == []
