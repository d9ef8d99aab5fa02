"""Mending and pruning on every kind of broker: what a foreign hand took, and who is gone."""

import pytest
from support.broker_wire import RECORD, TENANT
from support.fleet import until

from batchfleet.broker import claiming, fleet, requests
from batchfleet.broker.fleet import MARKED, RESTORED
from batchfleet.broker.requests import Accepted

OTHER = "acme"


def known_record(wire):
    return wire.run(fleet.deploy_hash(wire.keys))


def mend(wire, known, tenants=(TENANT,), nonce="fresh"):
    streams = fleet.queue_streams(wire.keys, RECORD)
    return wire.run(fleet.mend(wire.keys, known, tenants, streams, nonce))


def groups(wire, stream):
    return [
        dict(zip(one[::2], one[1::2], strict=True)) for one in wire.ask("XINFO", "GROUPS", stream)
    ]


def names_of_groups(wire, stream):
    return [group[b"name"] for group in groups(wire, stream)]


def test_nothing_is_made_of_what_is_whole(wire):
    known = known_record(wire)
    assert mend(wire, known) == 0
    assert known_record(wire) == known


def test_streams_that_were_deleted_are_made_with_their_groups(wire):
    wire.ask("DEL", wire.ingress, wire.queue(16), wire.queue(64, "low"))
    assert mend(wire, known_record(wire)) == 3
    assert names_of_groups(wire, wire.ingress) == [b"router"]
    assert names_of_groups(wire, wire.queue(16)) == [b"worker"]
    assert names_of_groups(wire, wire.queue(64, "low")) == [b"worker"]
    wire.open("a")
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]


def test_a_stream_that_somebody_made_anew_gets_its_group_from_the_start(wire):
    """What was added since must not be passed over."""
    wire.ask("DEL", wire.ingress)
    entry = wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    assert mend(wire, known_record(wire)) == 1
    ((_, entries),) = wire.run(requests.read_ingress([wire.ingress], "r1", 10, 0))
    assert [entry_id for entry_id, _ in entries] == [entry]


def test_a_lost_record_is_made_anew_with_another_epoch_and_nonce(wire):
    known = known_record(wire)
    wire.ask("DEL", wire.keys.deploy, wire.keys.tenants, wire.ingress)
    assert mend(wire, known, (TENANT, OTHER)) == RESTORED
    restored = known_record(wire)
    assert int(restored["epoch"]) == int(known["epoch"]) + 1
    assert restored["nonce"] == b"fresh"
    besides = ("epoch", "nonce")
    assert {n: v for n, v in restored.items() if n not in besides} == {
        n: v for n, v in known.items() if n not in besides
    }
    assert wire.run(fleet.tenants(wire.keys)) == [OTHER, TENANT]
    assert names_of_groups(wire, wire.keys.ingress(OTHER)) == [b"router"]
    assert wire.send("a") is Accepted.OK


def test_two_routers_restore_a_record_once(wire):
    known = known_record(wire)
    wire.ask("DEL", wire.keys.deploy)
    assert mend(wire, known, nonce="first") == RESTORED
    assert mend(wire, known, nonce="second") == 0
    assert known_record(wire)["nonce"] == b"first"


def test_nothing_is_made_where_the_record_has_moved_on(wire):
    known = known_record(wire)
    wire.run(fleet.configure(wire.keys, {"set:backlog": b"5"}, [], "n2"))
    wire.ask("DEL", wire.queue())
    assert mend(wire, known) == 0
    assert not wire.ask("EXISTS", wire.queue())


def test_what_was_undeployed_is_not_brought_back(wire):
    known = known_record(wire)
    others = [*fleet.queue_streams(wire.keys, RECORD), wire.ingress]
    assert wire.run(fleet.undeploy(wire.keys, others, forced=False)) == (True, 0)
    assert mend(wire, known) == MARKED
    assert known_record(wire) == {}
    assert 0 < wire.ask("PTTL", wire.keys.undeployed) <= fleet.UNDEPLOYED_MARK_MS
    wire.run(fleet.deploy(wire.keys, RECORD, others[:-1], "n3", [TENANT]))
    assert not wire.ask("EXISTS", wire.keys.undeployed)
    assert mend(wire, known_record(wire)) == 0


def test_tenants_that_are_there_are_left_alone(wire):
    """One that was taken away since is not brought back by a router that still knows it."""
    assert mend(wire, known_record(wire), (TENANT, OTHER)) == 1
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]


# On a real server alone: the twin destroys no groups.


def test_a_group_that_was_destroyed_is_made_from_the_start(served_wire):
    wire = served_wire
    wire.open("a")
    wire.ask("XGROUP", "DESTROY", wire.queue(), "worker")
    wire.join()
    assert wire.take() == [], "a stream without a group is passed over"
    assert mend(wire, known_record(wire)) == 1
    assert [work.id for work in wire.take()] == ["a"]


# Routers that are gone.

IDLE_MS = 30


def prune(wire, idle_ms=IDLE_MS):
    return wire.run(fleet.prune_routers(wire.keys, TENANT, idle_ms))


def routers(wire):
    found = wire.ask("XINFO", "CONSUMERS", wire.ingress, "router")
    facts = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
    return {one[b"name"].decode(): one[b"idle"] for one in facts}


def read(wire, router):
    return wire.run(requests.read_ingress([wire.ingress], router, 10, 0))


def idle_for(wire, router, idle_ms=IDLE_MS):
    until(lambda: routers(wire)[router] > idle_ms, f"{router} has read nothing for {idle_ms} ms")


@pytest.fixture
def gone(wire):
    """A router that read an entry, ended it, and is gone."""
    entry = wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    read(wire, "gone")
    wire.executor.run_all(requests.drop_ingress(wire.ingress, [entry]))
    idle_for(wire, "gone")
    return "gone"


def test_a_router_that_is_gone_is_forgotten(wire, gone):
    assert prune(wire) == 1
    assert routers(wire) == {}
    assert prune(wire) == 0


def test_a_router_that_reads_is_kept(wire, gone):
    wire.ask("XADD", wire.ingress, "*", "id", "b", "inputs", "x")
    ((_, entries),) = read(wire, "alive")
    wire.executor.run_all(requests.drop_ingress(wire.ingress, [entries[0][0]]))
    assert prune(wire, idle_ms=routers(wire)["gone"] - 1) == 1
    assert list(routers(wire)) == ["alive"]


def test_a_router_with_something_pending_is_kept(wire):
    wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    read(wire, "gone")
    idle_for(wire, "gone")
    assert prune(wire) == 0
    assert wire.ask("XPENDING", wire.ingress, "router")[0] == 1
    assert len(wire.run(claiming.claim_ingress(wire.ingress, "alive", 0, 10)).entries) == 1


def test_a_router_that_was_forgotten_reads_on(wire, gone):
    """A server before 7.2 counts a read that finds nothing as no sign of life."""
    prune(wire)
    wire.ask("XADD", wire.ingress, "*", "id", "b", "inputs", "x")
    ((_, entries),) = read(wire, gone)
    assert len(entries) == 1
    assert list(routers(wire)) == [gone]


def test_an_ingress_that_is_gone_has_nobody_to_forget(wire):
    wire.ask("DEL", wire.ingress)
    assert prune(wire) == 0
