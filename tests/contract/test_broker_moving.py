"""Move: waiting requests are placed anew under another deploy record, on every server."""

import pytest
from support.broker_wire import INPUTS, RECORD, TENANT
from support.script_scenes import SECOND

from batchfleet.broker import fleet, moving
from batchfleet.broker.errors import StaleRecordError
from batchfleet.broker.moving import MOVE_ITEMS_MAX, Moved, MoveItem
from batchfleet.broker.requests import TAKE_BYTES_MAX, Finished
from batchfleet.wire.deployment import Stamp

TARGET_EDGE = 16


@pytest.fixture
def two(wire):
    """A wire with a second version offered."""
    wire.run(fleet.offer(wire.keys, SECOND, fleet.queue_streams(wire.keys, SECOND), "n2"))
    return wire


def target(wire, priority="normal"):
    return wire.keys.queue("2", priority, TARGET_EDGE)


def waiting(wire, after=b"", count=MOVE_ITEMS_MAX):
    return wire.run(moving.waiting(wire.queue(), after, count))


def ids_in(wire, stream):
    return [fields[1].decode() for _, fields in wire.ask("XRANGE", stream, "-", "+")]


def items(wire, entries, queue=""):
    bell = wire.keys.bell("2")
    return [MoveItem(entry.entry_id, queue or target(wire), bell) for entry in entries]


def move(wire, entries, queue="", stamp=None):
    wanted = items(wire, entries, queue)
    return wire.run(moving.move(wire.keys, stamp or wire.stamp(), wire.queue(), wanted))


def test_what_waits_is_listed_without_its_inputs(two):
    two.open("a", rows=3)
    two.open("b", inputs=b"x" * 1000)
    first, second = waiting(two)
    assert (first.inputs_bytes, second.inputs_bytes) == (len(INPUTS), 1000)
    fields = dict(zip(first.fields[::2], first.fields[1::2], strict=True))
    assert (fields[b"id"], fields[b"rows"], fields[b"inputs"]) == (b"a", b"3", b"")
    assert [item.entry_id for item in waiting(two, first.entry_id)] == [second.entry_id]
    assert waiting(two, second.entry_id) == []
    assert [item.entry_id for item in waiting(two, count=1)] == [first.entry_id]


def test_what_a_worker_has_taken_does_not_wait(two):
    two.open("a", "b", "c")
    two.join()
    assert [work.id for work in two.take(room=2)] == ["a", "b"]
    assert [item.fields[1] for item in waiting(two)] == [b"c"]
    assert [item.fields[1] for item in waiting(two, b"0-1")] == [b"c"]


def test_in_a_queue_that_is_gone_nothing_waits(two):
    two.ask("DEL", two.queue())
    assert waiting(two) == []
    two.ask("SET", two.queue(), "foreign")
    assert waiting(two) == []


def test_what_waits_moves_in_order_with_all_its_fields(two):
    names = ["a", "b", "c", "d"]
    two.open(*names, rows=2)
    before = [fields for _, fields in two.ask("XRANGE", two.queue(), "-", "+")]
    deadlines = two.ask("ZRANGE", two.keys.due, 0, -1, "WITHSCORES")
    assert move(two, waiting(two)) == [Moved.MOVED] * 4
    after = [fields for _, fields in two.ask("XRANGE", target(two), "-", "+")]
    assert after == before
    assert two.ask("XLEN", two.queue()) == 0
    assert two.ask("ZRANGE", two.keys.due, 0, -1, "WITHSCORES") == deadlines
    assert two.ask("LLEN", two.keys.bell("2")) == 1, "its workers are woken, once"


def test_moved_requests_are_taken_and_answered_once(two):
    two.open("a", "b")
    move(two, waiting(two))
    two.join()
    assert two.take() == []
    taken = two.take(streams=[target(two)])
    assert [work.id for work in taken] == ["a", "b"]
    assert [two.settle(work) for work in taken] == [Finished.ANSWERED] * 2
    assert len(two.replies("a")) == 1
    assert two.ask("ZCARD", two.keys.due) == 0


def test_each_goes_to_the_queue_that_is_named_for_it(two):
    two.open("a", "b")
    first, second = items(two, waiting(two))
    high = target(two, "high")
    wanted = [first._replace(queue=high), second]
    assert two.run(moving.move(two.keys, two.stamp(), two.queue(), wanted)) == [Moved.MOVED] * 2
    assert (ids_in(two, high), ids_in(two, target(two))) == (["a"], ["b"])


def test_what_was_taken_meanwhile_stays_with_its_worker(two):
    two.open("a", "b")
    entries = waiting(two)
    two.join()
    (held,) = two.take(room=1)
    assert move(two, entries) == [Moved.TAKEN, Moved.MOVED]
    assert two.settle(held) is Finished.ANSWERED
    assert ids_in(two, target(two)) == ["b"]


def test_two_routers_that_move_the_same_move_it_once(two):
    two.open("a", "b")
    entries = waiting(two)
    assert move(two, entries) == [Moved.MOVED] * 2
    assert move(two, entries) == [Moved.GONE] * 2
    assert ids_in(two, target(two)) == ["a", "b"]


def test_what_is_closed_ends_where_it_lies(two):
    two.open("a", "b")
    entries = waiting(two)
    two.expire("a")
    assert move(two, entries) == [Moved.GONE, Moved.MOVED]
    assert two.ask("XLEN", two.queue()) == 0
    assert ids_in(two, target(two)) == ["b"]


def test_what_no_router_wrote_ends_as_well(two):
    two.ask("XADD", two.queue(), "*", "x", "y")
    many = [part for number in range(600) for part in (f"f{number}", "1")]
    two.ask("XADD", two.queue(), "*", *many)
    assert move(two, waiting(two)) == [Moved.GONE] * 2
    assert two.ask("XLEN", two.queue()) == 0


def test_by_a_record_that_is_another_by_now_nothing_moves(two):
    two.open("a")
    entries, known = waiting(two), two.stamp()
    for stamp in (Stamp(known.epoch - 1, known.nonce), Stamp(known.epoch, "another"), Stamp()):
        with pytest.raises(StaleRecordError):
            move(two, entries, stamp=stamp)
    assert ids_in(two, two.queue()) == ["a"]
    assert move(two, entries) == [Moved.MOVED]


def test_where_the_new_queue_is_gone_it_stays(two):
    two.open("a")
    entries = waiting(two)
    two.ask("DEL", target(two))
    assert move(two, entries) == [Moved.STALE]
    assert not two.ask("EXISTS", target(two))
    two.ask("SET", target(two), "foreign")
    assert move(two, entries) == [Moved.STALE]
    assert ids_in(two, two.queue()) == ["a"]


def test_one_call_moves_so_many_bytes_and_the_others_later(two):
    body = b"x" * (TAKE_BYTES_MAX // 4)
    two.open(*"abcdef", inputs=body)
    entries = waiting(two)
    outcomes = move(two, entries)
    assert outcomes == [Moved.MOVED] * 4 + [Moved.LATER] * 2
    assert move(two, entries[4:]) == [Moved.MOVED] * 2
    assert ids_in(two, target(two)) == [*"abcdef"]


def test_ids_are_compared_as_numbers_of_any_size(two):
    """Lua's numbers hold 53 bits; a foreign hand may have written an entry of any id."""
    late = 18446744073709551615
    for seq in (9, 10, late - 1, late):
        fields = ("id", f"s{seq}", "tenant", TENANT, "deadline", "1", "inputs", INPUTS)
        two.ask("XADD", two.queue(), f"{late}-{seq}", *fields)
        two.ask("ZADD", two.keys.due, 1e15, f"{TENANT}:s{seq}")
    entries = waiting(two)
    two.join()
    assert len(two.take(room=3)) == 3
    assert waiting(two) == entries[3:]
    assert move(two, entries) == [Moved.TAKEN] * 3 + [Moved.MOVED]


def test_after_a_move_the_version_can_be_withdrawn(two):
    two.open("a")
    two.run(fleet.configure(two.keys, {"stable": b"2"}, [], "n3"))
    streams = fleet.queue_streams(two.keys, RECORD)
    assert two.run(fleet.withdraw(two.keys, "1", streams, keep=True)) == 1
    assert move(two, waiting(two)) == [Moved.MOVED]
    assert two.run(fleet.withdraw(two.keys, "1", streams, keep=True)) == 0
