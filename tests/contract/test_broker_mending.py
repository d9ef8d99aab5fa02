"""Mending and pruning on every kind of broker: what somebody else took, and who is gone."""

import pytest
from support.broker_wire import RECORD, TENANT
from support.fleet import until

from batchfleet.broker import fleet, ingress
from batchfleet.broker.errors import UnusableKeyError
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


def test_a_stream_that_somebody_recreated_gets_its_group_from_the_start(wire):
    """What was added since must not be passed over."""
    wire.ask("DEL", wire.ingress)
    entry = wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    assert mend(wire, known_record(wire)) == 1
    ((_, entries),) = wire.run(ingress.read([wire.ingress], "r1", 10, 0))
    assert [entry_id for entry_id, _ in entries] == [entry]


def test_a_lost_record_is_recreated_with_another_epoch_and_nonce(wire):
    known = known_record(wire)
    wire.ask("DEL", wire.keys.deploy, wire.keys.tenants, wire.ingress)
    assert mend(wire, known, (TENANT, OTHER)) == RESTORED
    restored = known_record(wire)
    assert int(restored["epoch"]) == int(known["epoch"]) + 1
    assert restored["nonce"] == b"restored:1:fresh"
    assert fleet.known_epoch(restored) == (1, True)
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
    assert known_record(wire)["nonce"] == b"restored:1:first"


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


def test_tenants_that_were_lost_are_recreated(wire):
    wire.ask("DEL", wire.keys.tenants)
    assert mend(wire, known_record(wire), (TENANT, OTHER)) == 2, "the set, and a stream"
    assert wire.run(fleet.tenants(wire.keys)) == [OTHER, TENANT]


def test_who_does_not_know_the_tenants_mends_the_rest(wire):
    """A router that started after the loss makes no empty set, and fails at none."""
    known = known_record(wire)
    wire.ask("DEL", wire.keys.tenants, wire.queue())
    assert mend(wire, known, ()) == 1
    assert names_of_groups(wire, wire.queue()) == [b"worker"]
    wire.ask("DEL", wire.keys.deploy)
    assert mend(wire, known, ()) == RESTORED
    assert wire.run(fleet.tenants(wire.keys)) == []
    assert mend(wire, known_record(wire), (TENANT,)) == 1, "one that knows them makes them"
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]


def test_foreign_tenants_are_left_alone_and_the_rest_is_mended(wire):
    known = known_record(wire)
    wire.ask("DEL", wire.keys.tenants, wire.queue(), wire.keys.deploy)
    wire.ask("SET", wire.keys.tenants, "x")
    with pytest.raises(UnusableKeyError, match="tenants"):
        mend(wire, known)
    assert wire.ask("GET", wire.keys.tenants) == b"x"
    assert known_record(wire)["stable"] == b"1"
    assert names_of_groups(wire, wire.queue()) == [b"worker"]


def test_a_foreign_record_is_left_alone(wire):
    known = known_record(wire)
    wire.ask("DEL", wire.keys.deploy, wire.queue())
    wire.ask("SET", wire.keys.deploy, "x")
    with pytest.raises(UnusableKeyError):
        mend(wire, known)
    assert wire.ask("GET", wire.keys.deploy) == b"x"
    assert not wire.ask("EXISTS", wire.queue()), "what the record says now, nobody knows"


def test_a_record_that_lost_what_makes_it_one_is_put_back(wire):
    known = known_record(wire)
    wire.ask("HDEL", wire.keys.deploy, "stable")
    assert mend(wire, known) == RESTORED
    assert known_record(wire)["stable"] == known["stable"]


def changed(wire, backlog, nonce):
    """The record after an operator has changed it."""
    wire.run(fleet.configure(wire.keys, {"set:backlog": backlog}, [], nonce))
    return known_record(wire)


def test_what_was_put_back_from_an_older_memory_gives_way_to_a_newer_one(wire):
    older = changed(wire, b"5", "n2")
    newer = changed(wire, b"6", "n3")
    wire.ask("DEL", wire.keys.deploy)
    assert mend(wire, older, nonce="old") == RESTORED
    assert mend(wire, newer, nonce="new") == RESTORED
    found = known_record(wire)
    assert found["set:backlog"] == b"6"
    assert int(found["epoch"]) > int(newer["epoch"])
    assert mend(wire, older, nonce="old again") == 0
    assert mend(wire, newer, nonce="new again") == 0
    assert mend(wire, found, nonce="and again") == 0
    assert known_record(wire) == found


def test_what_an_operator_changed_since_it_was_put_back_stays(wire):
    older = known_record(wire)
    newer = changed(wire, b"6", "n2")
    wire.ask("DEL", wire.keys.deploy)
    assert mend(wire, older) == RESTORED
    word = changed(wire, b"7", "n3")
    assert mend(wire, newer) == 0
    assert known_record(wire) == word


def test_a_record_that_was_put_back_twice_says_no_more_than_before(wire):
    older = known_record(wire)
    newer = changed(wire, b"6", "n2")
    for _ in range(3):
        wire.ask("DEL", wire.keys.deploy)
        assert mend(wire, older) == RESTORED
        older = known_record(wire)
    assert int(older["epoch"]) > int(newer["epoch"])
    assert mend(wire, newer) == RESTORED
    assert known_record(wire)["set:backlog"] == b"6"


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
    return wire.run(ingress.prune_readers(wire.keys, TENANT, idle_ms))


def routers(wire):
    found = wire.ask("XINFO", "CONSUMERS", wire.ingress, "router")
    facts = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
    return {one[b"name"].decode(): one[b"idle"] for one in facts}


def read(wire, router):
    return wire.run(ingress.read([wire.ingress], router, 10, 0))


def idle_for(wire, router, idle_ms=IDLE_MS):
    until(lambda: routers(wire)[router] > idle_ms, f"{router} has read nothing for {idle_ms} ms")


@pytest.fixture
def gone(wire):
    """A router that read an entry, ended it, and is gone."""
    entry = wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    read(wire, "gone")
    wire.executor.run_all(ingress.drop(wire.ingress, [entry]))
    idle_for(wire, "gone")
    return "gone"


def test_a_router_that_is_gone_is_forgotten(wire, gone):
    assert prune(wire) == 1
    assert routers(wire) == {}
    assert prune(wire) == 0


def test_a_router_that_reads_is_kept(wire, gone):
    wire.ask("XADD", wire.ingress, "*", "id", "b", "inputs", "x")
    ((_, entries),) = read(wire, "alive")
    wire.executor.run_all(ingress.drop(wire.ingress, [entries[0][0]]))
    assert prune(wire, idle_ms=routers(wire)["gone"] - 1) == 1
    assert list(routers(wire)) == ["alive"]


def test_a_router_with_something_pending_is_kept(wire):
    wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", "x")
    read(wire, "gone")
    idle_for(wire, "gone")
    assert prune(wire) == 0
    assert wire.ask("XPENDING", wire.ingress, "router")[0] == 1
    assert len(wire.run(ingress.claim(wire.ingress, "alive", 0, 10)).entry_ids) == 1


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
