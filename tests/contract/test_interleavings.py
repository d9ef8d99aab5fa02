"""Interleavings that break a queue on streams, one a test, on every kind of broker.

`docs/decisions/0009-reported-faults.md` says which fault each stands for. Those about accept and
finish alone are in `test_broker_requests.py`.
"""

import pytest
from support.broker_wire import ANSWER, EXPIRED, RECORD, TENANT, TTL_MS

from batchfleet.broker import fleet, ingress, membership, requests
from batchfleet.broker.errors import FencedError, RefusedError
from batchfleet.broker.requests import Accepted, Finished


def bury(wire, worker):
    """What a peer does that has seen the counter stand still for a lease."""
    counter = wire.run(membership.beat_counters(wire.keys))[worker]
    assert wire.run(membership.bury(wire.keys, worker, counter))


def recover(wire, worker, gone, count=100, stream=None):
    found = wire.run(
        requests.recover(wire.keys, worker, wire.stamp(), gone, stream or wire.queue(), count)
    )
    return [(one.fields[1].decode(), one.attempt, one.inside) for one in found]


def retire(wire, gone):
    streams = fleet.queue_streams(wire.keys, RECORD)
    return wire.run(membership.retire(wire.keys, gone, streams))


def deliveries(wire, worker, stream=None):
    """How often each entry that a worker holds was handed out, oldest first."""
    wanted = (stream or wire.queue(), "worker", "-", "+", 100, worker)
    return [times for _, _, _, times in wire.ask("XPENDING", *wanted)]


def names(works):
    return [work.id for work in works]


# Workers that are frozen, buried and revived.


def test_a_forgotten_worker_is_handed_nothing(wire):
    """A blocked reader would be: the server recreates its consumer, and nobody looks there."""
    wire.join("w1")
    bury(wire, "w1")
    assert retire(wire, "w1")
    wire.open("a")
    with pytest.raises(FencedError):
        wire.take("w1")
    assert wire.pending(wire.queue()) == 0
    wire.join("w2")
    assert names(wire.take("w2")) == ["a"]


def test_what_a_frozen_worker_was_handed_is_recovered_in_its_place(wire):
    """The take behind its bell goes through while it is among the living, and nobody reads it."""
    wire.open("a", "b", "c")
    wire.join("w1")
    (work,) = wire.take("w1", room=1)
    wire.join("w2")
    bury(wire, "w1")
    assert recover(wire, "w2", "w1") == [("a", 1, False)]
    assert wire.settle(work, b"late", worker="w1") is Finished.NOT_MINE
    assert wire.settle(work, worker="w2") is Finished.ANSWERED
    assert wire.settle(work, b"late", worker="w1") is Finished.NOT_MINE
    assert wire.replies("a") == [ANSWER]
    assert names(wire.take("w2")) == ["b", "c"]


def test_an_entry_is_covered_from_the_instant_it_is_taken(wire):
    """Nothing lies between the take and the hold: whoever is alive keeps what was handed out."""
    wire.open("a")
    wire.join("w1")
    wire.join("w2")
    wire.take("w1")
    assert recover(wire, "w2", "w1") == []
    assert not retire(wire, "w1")
    assert names(wire.take("w2")) == []
    assert deliveries(wire, "w1") == [1]


def test_beats_do_not_count_as_deliveries(wire):
    wire.open("a")
    wire.join("w1")
    wire.take("w1")
    for _ in range(10):
        assert wire.run(membership.beat(wire.keys, "w1", TTL_MS, {}))
    assert deliveries(wire, "w1") == [1]


def test_two_heirs_share_what_a_lost_worker_left(wire):
    wire.open(*"abcdef")
    wire.join("w1")
    wire.take("w1")
    wire.join("w2")
    wire.join("w3")
    bury(wire, "w1")
    first = recover(wire, "w2", "w1", count=2)
    second = recover(wire, "w3", "w1")
    assert [name for name, _, _ in (*first, *second)] == list("abcdef")
    assert recover(wire, "w2", "w1") == recover(wire, "w3", "w1") == []


def test_a_buffered_request_that_loses_three_workers_keeps_its_count(wire):
    """It never ran, so that it cannot be what ended them."""
    wire.open("runs", "waits")
    wire.join("w0")
    wire.take("w0")
    for at in range(3):
        gone, heir = f"w{at}", f"w{at + 1}"
        wire.run(membership.note_inside(wire.keys, gone, [f"{TENANT}:runs"]))
        wire.join(heir)
        bury(wire, gone)
        assert recover(wire, heir, gone) == [("runs", at + 2, True), ("waits", 1, False)]
        assert retire(wire, gone)
    assert deliveries(wire, "w3") == [4, 1]


def test_what_was_answered_before_its_worker_died_is_final(wire):
    """The answer stands although the entry is pending still, as after a lost acknowledgement."""
    wire.open("a")
    wire.join("w1")
    wire.take("w1")
    assert wire.expire("a") is Finished.ANSWERED
    wire.join("w2")
    bury(wire, "w1")
    assert recover(wire, "w2", "w1") == []
    assert wire.replies("a") == [EXPIRED]
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)


def test_arrivals_keep_their_order_also_after_a_death(wire):
    wanted = [f"r{at:02}" for at in range(20)]
    wire.open(*wanted, timeout_ms=60_000)
    wire.join("w1")
    assert names(wire.take("w1", room=12)) == wanted[:12]
    wire.join("w2")
    bury(wire, "w1")
    recovered = [name for name, _, _ in recover(wire, "w2", "w1")]
    assert recovered + names(wire.take("w2")) == wanted


# Streams that are gone, foreign or set back.


def test_a_key_of_another_type_among_the_work_streams_stops_nobody(wire):
    wire.open("a", bucket=16)
    wire.open("c", bucket=64)
    wire.join("w1")
    wire.ask("DEL", wire.queue(32))
    wire.ask("SET", wire.queue(32), "foreign", "PX", TTL_MS)
    assert names(wire.take("w1", room=100)) == ["a", "c"]
    wire.join("w2")
    bury(wire, "w1")
    found = [recover(wire, "w2", "w1", stream=wire.queue(edge)) for edge in (16, 32, 64)]
    assert found == [[("a", 1, False)], [], [("c", 1, False)]]
    assert retire(wire, "w1")


def test_accept_leaves_nothing_open_where_the_work_stream_is_none(wire):
    """Its neighbours are accepted; it may go elsewhere, or be refused."""
    wire.ask("DEL", wire.queue(32))
    wire.ask("SET", wire.queue(32), "foreign", "PX", TTL_MS)
    entries = [wire.enter(name) for name in ("a", "b", "c")]
    items = [
        wire.item(name, entry, bucket=bucket)
        for name, entry, bucket in zip("abc", entries, (16, 32, 16), strict=True)
    ]
    assert wire.accept(*items) == [Accepted.OK, Accepted.STALE, Accepted.OK]
    assert wire.run(requests.deadline(wire.keys, TENANT, "b")) is None
    assert wire.ingress_left() == (1, 1)
    assert wire.accept(wire.item("b", entries[1], bucket=64)) == [Accepted.OK]


def test_accept_leaves_nothing_open_where_ids_are_used_up(served_wire):
    """Somebody else has added the last id there is: the stream takes nothing any more."""
    wire = served_wire
    last = f"{2**64 - 1}-{2**64 - 1}"
    wire.ask("XADD", wire.queue(32), last, "written", "by hand")
    wire.ask("XDEL", wire.queue(32), last)
    entry = wire.enter("a")
    assert wire.accept(wire.item("a", entry, bucket=32)) == [Accepted.STALE]
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) is None
    assert wire.ingress_left() == (1, 1)


def test_what_lay_there_before_its_group_is_handed_out(served_wire):
    """After a loss of everything, a request may be added before its stream has a group again."""
    wire = served_wire
    wire.open("a")
    early = wire.ask("XADD", wire.ingress, "*", "id", "b", "inputs", "x")
    for stream, group in ((wire.queue(), "worker"), (wire.ingress, "router")):
        wire.ask("XGROUP", "DESTROY", stream, group)
    wire.run(fleet.deploy(wire.keys, RECORD, fleet.queue_streams(wire.keys, RECORD), "n", [TENANT]))
    wire.join("w1")
    assert names(wire.take("w1")) == ["a"]
    ((_, entries),) = wire.run(ingress.read([wire.ingress], "router-1", 10, 0))
    assert [entry for entry, _ in entries] == [early]


def test_a_group_made_again_from_the_start_runs_nothing_twice(served_wire):
    """Also where finished entries were never deleted."""
    wire = served_wire
    wire.open("a", "b", "waits")
    wire.join("w1")
    first, second = wire.take("w1", room=2)
    wire.settle(first)
    wire.expire("b")
    copy = ("id", "a", "tenant", TENANT, "inputs", "x")
    wire.ask("XADD", wire.queue(), "*", *copy)
    wire.ask("XGROUP", "DESTROY", wire.queue(), "worker")
    wire.ask("XGROUP", "CREATE", wire.queue(), "worker", "0")
    assert names(wire.take("w1")) == ["waits"]
    assert wire.settle(second) is Finished.NOT_MINE
    assert [wire.replies(name) for name in "ab"] == [[ANSWER], [EXPIRED]]
    assert wire.ask("XLEN", wire.queue()) == 1


def test_a_group_that_is_set_back_answers_nothing_twice(served_wire):
    """A server that lost its last writes hands out again what it had handed out."""
    wire = served_wire
    wire.open("done", "held")
    wire.join("w1")
    done, held = wire.take("w1")
    wire.settle(done)
    wire.ask("XGROUP", "SETID", wire.queue(), "worker", "0")
    wire.join("w2")
    (again,) = wire.take("w2")
    assert again.id == "held"
    outcomes = {wire.settle(held, b"first"), wire.settle(again, b"second", worker="w2")}
    assert outcomes == {Finished.NOT_MINE, Finished.ANSWERED}
    assert len(wire.replies("held")) == len(wire.replies("done")) == 1


def test_names_of_workers_that_left_do_not_pile_up(served_wire):
    wire = served_wire
    wire.join("stays")
    for at in range(60):
        wire.open(f"r{at}")
        (work,) = wire.take(wire.join(f"w{at}"))
        wire.settle(work, worker=f"w{at}")
        assert wire.run(membership.leave(wire.keys, f"w{at}"))
        assert retire(wire, f"w{at}")
    assert wire.ask("XINFO", "CONSUMERS", wire.queue(), "worker") == []
    assert wire.run(membership.lost(wire.keys)) == []


# Ingress and replies.


def test_a_finish_that_fails_has_ended_no_entry(wire):
    """Whatever is in its way: the entry stays pending until the reply is there."""
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    deadline = wire.ask("ZSCORE", wire.keys.due, f"{TENANT}:a")
    wire.ask("DEL", wire.keys.due)
    wire.ask("SET", wire.keys.due, "foreign", "PX", TTL_MS)
    with pytest.raises(RefusedError):
        wire.settle(work)
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (1, 1)
    wire.ask("DEL", wire.keys.due)
    wire.ask("ZADD", wire.keys.due, int(float(deadline)), f"{TENANT}:a")
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.replies("a") == [ANSWER]


def test_a_copy_joins_although_the_backlog_is_full(wire):
    wire.open("a", "b", backlog=2)
    assert wire.send("a", backlog=2) is Accepted.DUP
    (work, _) = wire.take(wire.join("w1"))
    wire.settle(work)
    wire.open("c", backlog=2)
    assert wire.send("a", backlog=2) is Accepted.DUP
    assert wire.replies("a") == [ANSWER]
    assert wire.ingress_left() == (0, 0)


def test_a_copy_does_not_move_the_deadline(wire):
    long_ago = wire.now_ms() - 10_000
    first = wire.enter("a", entry_id=f"{long_ago}-0")
    assert wire.accept(wire.item("a", first, timeout_ms=30_000)) == [Accepted.OK]
    assert wire.send("a", timeout_ms=60_000) is Accepted.DUP
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) == long_ago + 30_000


def test_deleted_entries_are_not_counted_among_those_claimed(wire):
    entries = [wire.enter(name) for name in "abc"]
    wire.ask("XDEL", wire.ingress, entries[1])
    claimed = wire.run(ingress.claim(wire.ingress, "router-2", 0, 100)).entry_ids
    assert claimed == [entries[0], entries[2]]
    assert wire.ingress_left() == (2, 2)
    assert wire.run(ingress.claim(wire.ingress, "router-2", 3_600_000, 100)).entry_ids == []


def test_a_copy_whose_router_died_is_accepted_once(wire):
    """Two routers come to handle one entry: one that was slow, and one that claimed it."""
    entry = wire.enter("a")
    wire.run(ingress.claim(wire.ingress, "router-2", 0, 100))
    assert wire.accept(wire.item("a", entry)) == [Accepted.OK]
    assert wire.accept(wire.item("a", entry)) == [Accepted.DUP]
    wire.join("w1")
    assert names(wire.take("w1")) == ["a"]


def test_a_reply_that_is_read_stays_with_its_time_to_live(served_wire):
    wire = served_wire
    wire.open("a")
    (work,) = wire.take(wire.join("w1"))
    wire.settle(work)
    key = wire.reply_key("a")
    for _ in range(2):
        assert wire.ask("BLMOVE", key, key, "LEFT", "LEFT", 1) == ANSWER
        assert 0 < wire.ask("PTTL", key) <= TTL_MS
