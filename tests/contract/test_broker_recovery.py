"""Recovery on every kind of broker: bury, take over in place, forget."""

import pytest
from support.broker_wire import TENANT, TTL_MS

from batchfleet.broker import membership, requests
from batchfleet.broker.errors import FencedError


def counter_of(wire, worker):
    return wire.run(membership.beat_counters(wire.keys))[worker]


def bury(wire, worker):
    return wire.run(membership.bury(wire.keys, worker, counter_of(wire, worker)))


def recover(wire, worker="w2", gone="w1", count=10):
    found = wire.run(requests.recover(wire.keys, worker, wire.stamp(), gone, wire.queue(), count))
    return [(one.fields[1].decode(), one.attempt, one.inside) for one in found]


def retire(wire, gone="w1"):
    return wire.run(membership.retire(wire.keys, gone, [wire.queue(), wire.queue(32)]))


def lost(wire):
    return wire.run(membership.lost(wire.keys))


def test_a_beat_that_comes_in_between_wins(wire):
    wire.join()
    seen = counter_of(wire, "w1")
    assert wire.run(membership.beat(wire.keys, "w1", TTL_MS, {}))
    assert not wire.run(membership.bury(wire.keys, "w1", seen))
    assert bury(wire, "w1")
    assert (lost(wire), wire.run(membership.living(wire.keys))) == (["w1"], [])
    assert not wire.run(membership.bury(wire.keys, "w1", seen))
    assert not wire.run(membership.join(wire.keys, "w1", TTL_MS, {}))


def test_what_was_inside_counts_one_attempt_more(wire):
    wire.open("a", "b", "c")
    wire.join()
    wire.take()
    wire.run(membership.note_inside(wire.keys, "w1", [f"{TENANT}:b"]))
    wire.join("w2")
    assert recover(wire) == [], "the living keep what they have"
    bury(wire, "w1")
    assert not retire(wire)
    assert recover(wire, count=2) == [("a", 1, False), ("b", 2, True)]
    assert recover(wire) == [("c", 1, False)]
    assert recover(wire) == []
    held = wire.ask("XPENDING", wire.queue(), "worker", "-", "+", 10, "w2")
    assert [one[3] for one in held] == [1, 2, 1]


def test_what_was_closed_meanwhile_ends(wire):
    wire.open("a", "b")
    wire.join()
    wire.take()
    wire.expire("a")
    wire.join("w2")
    bury(wire, "w1")
    assert recover(wire) == [("b", 1, False)]
    assert wire.pending(wire.queue()) == 1


def test_only_the_living_take_over(wire):
    wire.join()
    bury(wire, "w1")
    with pytest.raises(FencedError):
        recover(wire)


def test_a_lost_worker_is_forgotten_once_nothing_is_pending(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.join("w2")
    bury(wire, "w1")
    wire.ask("DEL", wire.queue(32))
    assert not retire(wire)
    recover(wire)
    assert retire(wire)
    assert lost(wire) == []
    assert wire.run(membership.announcement(wire.keys, "w1")) == {}
    assert wire.settle(work, worker="w2").name == "ANSWERED"


def test_who_was_buried_and_leaves_keeps_the_note_of_what_was_inside(wire):
    wire.open("a")
    wire.join()
    wire.take()
    assert wire.run(membership.note_inside(wire.keys, "w1", [f"{TENANT}:a"])) == 1
    wire.join("w2")
    bury(wire, "w1")
    assert not wire.run(membership.leave(wire.keys, "w1"))
    assert recover(wire) == [("a", 2, True)]


def test_who_finds_itself_removed_says_that_it_is_lost(wire):
    """Somebody else removed the key of the living: nobody else would look for its entries."""
    wire.open("a")
    wire.join()
    wire.take()
    wire.ask("DEL", wire.keys.workers)
    assert not wire.run(membership.leave(wire.keys, "w1"))
    wire.join("w2")
    assert recover(wire) == [("a", 1, False)]
    assert retire(wire)


def test_leaving_a_model_that_is_not_deployed_any_more_makes_no_key(wire):
    wire.join()
    wire.ask("DEL", wire.keys.deploy)
    wire.run(membership.leave(wire.keys, "w1"))
    assert wire.ask("EXISTS", wire.keys.lost) == 0
