"""Numbers that somebody else has written, on every kind of broker: each has a range."""

import pytest
from support.broker_wire import ANSWER, INPUTS, RECORD, TENANT
from support.script_scenes import SECOND

from batchfleet.broker import fleet, later, membership, requests
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.requests import Finished
from batchfleet.wire.limits import OPEN_MS_MAX, RESULT_TTL_MS_MAX
from batchfleet.wire.work import parse_work

HOUR_MS = 3_600_000
NO_NUMBERS = (
    "-40", "-1", "+3", "1e1", "1E9", "0x3", "0X1F", "2.5", ".5", "nan", "-nan", "inf", "-inf", "",
    " ", " 3", "3 ", "1_000", "\u0663", "3\n", "0b11", "infinity", "1,5", "3\0",
)  # fmt: skip
MANY_PARTS = 20_000


def forge(wire, name, **fields):
    """An entry that no router wrote, of a request that is open all the same."""
    known = {"id": name, "tenant": TENANT, **fields, "deadline": HOUR_MS * 10**6, "inputs": "x"}
    wire.ask("ZADD", wire.keys.due, HOUR_MS * 10**6, f"{TENANT}:{name}")
    return wire.ask("XADD", wire.queue(), "*", *(p for pair in known.items() for p in pair))


def take(wire, room):
    command = requests.take(wire.keys, "w1", wire.stamp(), RECORD, [wire.queue()], room)
    return sum(len(entries) for _, entries in wire.run(command))


# Rows and bytes, by which `take` counts.


@pytest.mark.parametrize("rows", NO_NUMBERS)
def test_rows_that_are_no_number_count_for_one(wire, rows):
    wire.join()
    for name in "abcdef":
        forge(wire, name, rows=rows)
    assert take(wire, 2) == 2
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"], "there is more, for another worker"
    assert take(wire, 100) == 4


@pytest.mark.parametrize(
    ("rows", "room", "taken"),
    [
        # 16 are read before anything is known of their size; then as many as there is room for.
        ("0", 20, 20),
        ("00", 20, 20),
        ("1", 20, 20),
        ("002", 20, 16),
        ("9" * 400, 20, 16),
        ("9" * 400, 100, 52),
    ],
)
def test_rows_count_for_one_at_least_and_for_half_a_batch_at_most(wire, rows, room, taken):
    wire.join()
    for number in range(60):
        forge(wire, f"a{number}", rows=rows)
    assert requests.weight_max(RECORD) == 4
    assert take(wire, room) == taken
    assert wire.ask("LLEN", wire.bell) == 1


@pytest.mark.parametrize("size", NO_NUMBERS)
def test_sizes_that_are_no_number_count_for_nothing(wire, size):
    wire.join()
    for name in "abc":
        forge(wire, name, inputs_at="blob", inputs_bytes=size)
    assert take(wire, 3) == 3


@pytest.mark.parametrize("size", [requests.TAKE_BYTES_MAX, "9" * 400])
def test_sizes_end_a_read_and_no_more(wire, size):
    wire.join()
    for number in range(20):
        forge(wire, f"a{number}", inputs_at="blob", inputs_bytes=size)
    assert take(wire, 100) == 16
    assert wire.ask("LLEN", wire.bell) == 1
    assert take(wire, 100) == 4


def test_a_field_that_stands_twice_counts_once(wire):
    wire.join()
    wire.ask("ZADD", wire.keys.due, HOUR_MS * 10**6, f"{TENANT}:a", HOUR_MS * 10**6, f"{TENANT}:b")
    for name in "ab":
        fields = ("id", name, "tenant", TENANT, "rows", "4", "rows", "1")
        wire.ask("XADD", wire.queue(), "*", *fields)
    assert take(wire, 2) == 2


@pytest.mark.parametrize("fields", [("id", "a"), ("tenant", TENANT), ("a", "b", "c", "d")])
def test_an_entry_without_a_name_is_ended(wire, fields):
    wire.ask("XADD", wire.queue(), "*", *fields)
    wire.join()
    assert take(wire, 5) == 0
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize(
    "name",
    ["rows", "inputs_bytes", "result_ttl_ms", "timeout_ms", "retries", "attempt", "deadline"],
)
def test_a_work_entry_with_what_is_no_number_is_unreadable(name, value):
    known = {"id": "a", "tenant": TENANT, "deadline": "1", "inputs": "x", name: value}
    flat = [part.encode() for pair in known.items() for part in pair]
    with pytest.raises(ValueError, match="whole number"):
        parse_work("stream", b"1-0", flat)


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("rows", 1, 10_000_000),
        ("result_ttl_ms", 1, RESULT_TTL_MS_MAX),
        ("timeout_ms", 1, HOUR_MS),
        ("retries", 0, 10),
        ("inputs_bytes", 0, 16 * 1024 * 1024),
    ],
)
def test_numbers_of_a_work_entry_have_the_range_of_the_contract(name, lowest, highest):
    def parsed(value):
        flat = [b"id", b"a", b"tenant", b"t", b"deadline", b"1", b"inputs", b"x"]
        return parse_work("stream", b"1-0", [*flat, name.encode(), b"%d" % value])

    assert [getattr(parsed(value), name) for value in (lowest, highest)] == [lowest, highest]
    for outside in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match="whole number"):
            parsed(outside)


# Entries of more fields than Lua can hand over.


def forge_large(wire, stream, *first):
    fields = [part for number in range(MANY_PARTS // 2) for part in (f"f{number}", "x")]
    return wire.ask("XADD", stream, "*", *first, *fields)


def open_by_hand(wire, *names):
    for name in names:
        wire.ask("ZADD", wire.keys.due, HOUR_MS * 10**6, f"{TENANT}:{name}")


def test_an_entry_of_10_000_fields_is_taken_answered_and_spoils_nothing(wire):
    open_by_hand(wire, "a")
    forge_large(
        wire, wire.queue(), "id", "a", "tenant", TENANT, "inputs", "x", "deadline", HOUR_MS * 10**6
    )
    wire.open("b")
    wire.join()
    large, small = wire.take()
    assert (large.id, small.id) == ("a", "b")
    assert wire.retry(large) is Retried.STALE, "it is still its worker's, to be answered"
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in (large, small)]
    outcomes = wire.finish("w1", *(end._replace(is_dead=True) for end in ends))
    assert outcomes == [Finished.ANSWERED] * 2
    (first, second) = (fields for _, fields in wire.ask("XRANGE", wire.keys.dead, "-", "+"))
    assert first[:4] == [b"id", b"a", b"tenant", TENANT.encode()]
    assert first[4::2] == [b"stream", b"reply"]
    assert INPUTS in second


def test_an_entry_of_10_000_fields_is_recovered(wire):
    open_by_hand(wire, "a")
    forge_large(wire, wire.queue(), "id", "a", "tenant", TENANT)
    wire.join()
    assert take(wire, 5) == 1
    wire.run(membership.leave(wire.keys, "w1"))
    wire.join("w2")
    (found,) = wire.run(requests.recover(wire.keys, "w2", wire.stamp(), "w1", wire.queue(), 5))
    assert (len(found.fields), found.attempt) == (MANY_PARTS + 4, 1)


def test_what_is_parked_with_10_000_fields_ends_alone(wire):
    open_by_hand(wire, "a")
    place = ("queue", wire.queue(), "bell", wire.bell, "id", "a", "tenant", TENANT)
    parked_id = forge_large(wire, wire.keys.parked, *place)
    wire.ask("ZADD", wire.keys.later, 1, parked_id)
    wire.open("b", delay_ms=HOUR_MS)
    wire.be_ripe()
    assert sorted(wire.promote()) == [("a", Promoted.CLOSED), ("b", Promoted.MOVED)]
    assert wire.parked() == (0, 0)


# Scores and counts.


@pytest.mark.parametrize("deadline", ["inf", "1e300", "-inf", "-5", "1e15"])
def test_a_deadline_that_others_wrote_costs_no_answer(wire, deadline):
    wire.open("a", "b")
    wire.ask("ZADD", wire.keys.due, deadline, f"{TENANT}:a")
    ends = [wire.end(name, ANSWER) for name in "ab"]
    assert wire.finish("", *ends) == [Finished.ANSWERED] * 2
    ttl_ms = wire.ask("PTTL", wire.tombstone("a"))
    assert 0 < ttl_ms <= ends[0].tombstone_ttl_ms + OPEN_MS_MAX


@pytest.mark.parametrize("counter", ["inf", "-inf", "1e300", str(2**53), "-7", "2.5", "0.5"])
def test_a_beat_counter_that_others_wrote_moves_on(wire, counter):
    wire.join()
    wire.ask("ZADD", wire.keys.workers, counter, "w1")
    beats = [wire.run(membership.beat(wire.keys, "w1", HOUR_MS, {})) for _ in range(3)]
    assert beats == [1, 2, 3]
    assert wire.run(membership.beat_counters(wire.keys)) == {"w1": 3.0}


@pytest.mark.parametrize("counter", ["inf", "-inf", "1e300", "2.5", "-7"])
def test_a_dead_worker_is_buried_whatever_its_counter(wire, counter):
    wire.join()
    wire.ask("ZADD", wire.keys.workers, counter, "w1")
    seen = wire.run(membership.beat_counters(wire.keys))["w1"]
    assert wire.run(membership.bury(wire.keys, "w1", seen))
    assert wire.run(membership.lost(wire.keys)) == ["w1"]


def test_a_count_of_deliveries_has_a_range(served_wire):
    """Set by hand, on a server; the twin has no such command."""
    wire = served_wire
    wire.open("a", "b")
    wire.join()
    for work in wire.take():
        count = 2**62
        wire.ask("XCLAIM", work.stream, "worker", "w1", 0, work.entry_id, "RETRYCOUNT", count)
    wire.run(membership.note_inside(wire.keys, "w1", [f"{TENANT}:a"]))
    wire.run(membership.leave(wire.keys, "w1"))
    wire.join("w2")
    found = wire.run(requests.recover(wire.keys, "w2", wire.stamp(), "w1", wire.queue(), 10))
    assert len(found) == 2
    assert all(0 < one.attempt <= 1_000_001 for one in found)


EPOCHS = ("", "many", "-1", "1e3", "0x10", "9" * 19, "9" * 400, "2.5", " 1")


@pytest.mark.parametrize("epoch", EPOCHS)
def test_an_epoch_that_others_wrote_is_counted_again(wire, epoch):
    streams = fleet.queue_streams(wire.keys, SECOND)

    def spoil():
        wire.ask("HSET", wire.keys.deploy, "epoch", epoch)

    spoil()
    assert wire.run(fleet.configure(wire.keys, {"set:backlog": b"5"}, [], "n")) == 1
    spoil()
    assert wire.run(fleet.offer(wire.keys, SECOND, streams, "n")) == 1
    spoil()
    assert wire.run(fleet.withdraw(wire.keys, "2", streams)) == 0
    spoil()
    assert wire.run(fleet.deploy(wire.keys, SECOND, streams, "n", [TENANT])) == 1
    wire.run(fleet.configure(wire.keys, {"draining:1": b"[32]"}, [], "n"))
    spoil()
    assert wire.run(fleet.remove_bucket(wire.keys, "1", 32))
    assert wire.run(fleet.deployment(wire.keys)).epoch == 1


@pytest.mark.parametrize("listed", ["", "[", "5", "{}", '["32"]', "[32, null]", "null", "[1e400]"])
def test_a_list_of_draining_buckets_that_others_wrote_removes_nothing(wire, listed):
    wire.ask("HSET", wire.keys.deploy, "draining:1", listed)
    assert not wire.run(fleet.remove_bucket(wire.keys, "1", 32))
    assert wire.ask("EXISTS", wire.queue(32))


# What was asked for, and what is parked.


@pytest.mark.parametrize("value", [*NO_NUMBERS, "0", "9" * 400])
def test_a_ttl_that_others_wrote_is_brought_into_its_range(wire, value):
    wire.open("a", result_ttl_ms=HOUR_MS)
    wire.ask("HSET", wire.keys.ttl, f"{TENANT}:a", value)
    end = wire.end("a", ANSWER)
    assert wire.finish("", end) == [Finished.ANSWERED]
    ttl_ms = wire.ask("PTTL", wire.reply_key("a"))
    if value == "9" * 400:
        assert RESULT_TTL_MS_MAX - HOUR_MS < ttl_ms <= RESULT_TTL_MS_MAX
    elif value != "0":  # that one is gone by now
        assert 0 < ttl_ms <= end.result_ttl_ms


@pytest.mark.parametrize("score", ["-inf", "-5", "0.5"])
def test_a_time_that_others_wrote_is_one_that_has_come(wire, score):
    wire.open("a", delay_ms=HOUR_MS)
    (parked_id,) = wire.ask("ZRANGE", wire.keys.later, 0, -1)
    wire.ask("ZADD", wire.keys.later, score, parked_id)
    assert [item.request_id for item in wire.run(later.ripe(wire.keys, 10))] == ["a"]
    assert wire.promote() == [("a", Promoted.MOVED)]
