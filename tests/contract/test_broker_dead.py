"""Dead letters on every kind of broker: written with the answer or not at all, and sent again."""

import pytest
from support.broker_wire import ANSWER, EXPIRED, INPUTS, TENANT

from batchfleet.broker import dead, listing, requests
from batchfleet.broker.commands import call
from batchfleet.broker.errors import RefusedError
from batchfleet.broker.requests import Finished
from batchfleet.wire import limits
from batchfleet.wire.request import Request


def end_dead(wire, work, **changes):
    """The item that gives up a request whose entry a worker holds."""
    item = wire.end(work.id, ANSWER, work.stream, work.entry_id)
    return item._replace(status="error", is_dead=True, **changes)


def give_up(wire, request_id, **changes):
    """Open, take and give up one request; returns the outcome."""
    wire.open(request_id, **changes)
    (work,) = wire.take()
    return wire.finish("w1", end_dead(wire, work))[0]


def letters(wire):
    """Dead letters as mappings, the oldest first."""
    found = wire.ask("XRANGE", wire.keys.dead, "-", "+")
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in found]


@pytest.fixture(autouse=True)
def joined(wire):
    wire.join()


# Written with the terminal reply.


def test_a_letter_holds_the_entry_its_stream_and_the_reply(wire):
    assert give_up(wire, "a", rows=3) is Finished.ANSWERED
    assert wire.replies("a") == [ANSWER]
    (letter,) = letters(wire)
    assert letter[b"id"] == b"a"
    assert letter[b"tenant"] == TENANT.encode()
    assert letter[b"inputs"] == INPUTS
    assert letter[b"rows"] == b"3"
    assert letter[b"stream"] == wire.queue().encode()
    assert letter[b"reply"] == ANSWER
    assert wire.ask("XLEN", wire.queue()) == 0


def test_an_answer_that_is_no_failure_leaves_no_letter(wire):
    wire.open("a")
    (work,) = wire.take()
    wire.settle(work)
    assert letters(wire) == []


def test_a_request_that_was_over_before_leaves_no_letter(wire):
    wire.open("a")
    (work,) = wire.take()
    wire.expire("a")
    assert wire.finish("w1", end_dead(wire, work)) == [Finished.CLOSED]
    assert letters(wire) == []
    assert wire.replies("a") == [EXPIRED]


def test_only_the_holder_of_an_entry_gives_it_up(wire):
    wire.open("a")
    (work,) = wire.take()
    assert wire.finish("w2", end_dead(wire, work)) == [Finished.NOT_MINE]
    assert letters(wire) == []


def test_inputs_under_a_blob_key_are_copied_into_the_letter(wire):
    blob = wire.keys.blob(TENANT, "a")
    wire.ask("SET", blob, b"large")
    wire.open("a", inputs_at="blob")
    (work,) = wire.take()
    assert wire.finish("w1", end_dead(wire, work, has_blob=True)) == [Finished.ANSWERED]
    (letter,) = letters(wire)
    assert letter[b"inputs"] == b"large"
    assert b"inputs_at" not in letter
    assert not wire.ask("EXISTS", blob)


def test_a_letter_whose_blob_is_gone_says_where_it_was(wire):
    wire.open("a", inputs_at="blob")
    (work,) = wire.take()
    assert wire.finish("w1", end_dead(wire, work, has_blob=True)) == [Finished.ANSWERED]
    (letter,) = letters(wire)
    assert letter[b"inputs_at"] == b"blob"
    assert b"inputs" not in letter


def test_a_letter_that_cannot_be_written_keeps_entry_and_request(wire):
    wire.open("a", "b")
    works = wire.take()
    wire.ask("SET", wire.keys.dead, "somebody else's")
    ends = [end_dead(wire, works[0]), wire.end("b", ANSWER, works[1].stream, works[1].entry_id)]
    assert wire.finish("w1", *ends) == [Finished.KEPT, Finished.ANSWERED]
    assert wire.replies("a") == []
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) is not None
    assert wire.pending(wire.queue()) == 1
    wire.ask("DEL", wire.keys.dead)
    assert wire.finish("w1", ends[0]) == [Finished.ANSWERED]
    assert [letter[b"id"] for letter in letters(wire)] == [b"a"]


# Bounded.


def finish_with_caps(wire, work, letters_max, bytes_max):
    """The finish command with other caps than the contract's."""
    command = requests.finish(wire.keys, "w1", [end_dead(wire, work)])
    _, _, count, *rest = command.parts
    keys, args = rest[:count], rest[count:]
    args[5:7] = [letters_max, bytes_max]
    return wire.run(call("finish", keys, args, lambda raw: raw))


def test_letters_are_bounded_by_their_bytes(wire):
    for at in range(12):
        wire.open(f"r{at}", inputs=b"x" * 10_000)
        (work,) = wire.take()
        assert finish_with_caps(wire, work, 1000, 50_000) == [b"ANSWERED"]
    found = [letter[b"id"] for letter in letters(wire)]
    assert 1 <= len(found) <= 5
    assert found[-1] == b"r11", "the oldest go first"


def test_a_letter_larger_than_all_is_kept_alone(wire):
    give_up(wire, "small")
    wire.open("large", inputs=b"x" * 10_000)
    (work,) = wire.take()
    assert finish_with_caps(wire, work, 1000, 5_000) == [b"ANSWERED"]
    assert [letter[b"id"] for letter in letters(wire)] == [b"large"]


def test_letters_are_bounded_by_their_number(wire):
    """About: a server trims whole blocks of a hundred entries."""
    for at in range(250):
        wire.open(f"r{at}")
        (work,) = wire.take()
        finish_with_caps(wire, work, 10, 10_000_000)
    found = [letter[b"id"] for letter in letters(wire)]
    assert 10 <= len(found) <= 110
    assert found[-1] == b"r249"


# Read, removed, sent again.


def test_letters_are_listed_without_their_inputs_the_newest_first(wire):
    for name in ("a", "b", "c"):
        give_up(wire, name)
    first = wire.run(listing.latest_heads(wire.keys.dead, "+", 2))
    rest = wire.run(listing.latest_heads(wire.keys.dead, "(" + first[-1][0].decode(), 2))
    found = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in (*first, *rest)]
    assert [fields[b"id"] for fields in found] == [b"c", b"b", b"a"]
    assert {fields[b"inputs"] for fields in found} == {b""}
    assert {fields[b"reply"] for fields in found} == {ANSWER}
    ((entry_id, flat),) = wire.run(dead.letter(wire.keys, rest[0][0]))
    assert entry_id == rest[0][0]
    assert INPUTS in flat
    assert wire.run(dead.letter(wire.keys, b"1-0")) == []


def test_heads_of_a_queue_tell_what_waits_without_taking_it(wire):
    wire.open("a", "b", "c")
    first = wire.run(listing.heads(wire.queue(), "-", 2))
    rest = wire.run(listing.heads(wire.queue(), "(" + first[-1][0].decode(), 2))
    assert [flat[1] for _, flat in (*first, *rest)] == [b"a", b"b", b"c"]
    assert not any(INPUTS in flat for _, flat in (*first, *rest))
    assert wire.run(listing.heads(wire.queue(64), "-", 2)) == []
    assert len(wire.take()) == 3


def test_who_has_taken_what_is_told_in_pages(wire):
    wire.open("a", "b", "c")
    works = wire.take()
    first = wire.run(listing.taken(wire.queue(), "-", 2))
    rest = wire.run(listing.taken(wire.queue(), "(" + first[-1].entry_id.decode(), 2))
    assert [one.entry_id for one in (*first, *rest)] == [work.entry_id for work in works]
    assert {(one.worker, one.deliveries) for one in (*first, *rest)} == {("w1", 1)}


def test_old_letters_are_removed(wire):
    give_up(wire, "a")
    give_up(wire, "b")
    (first, _), (second, _) = wire.ask("XRANGE", wire.keys.dead, "-", "+")
    written_ms = int(first.partition(b"-")[0])
    assert wire.run(dead.trim_letters(wire.keys, written_ms)) == 0
    assert wire.run(dead.trim_letters(wire.keys, int(second.partition(b"-")[0]) + 1)) == 2
    assert wire.run(dead.count_letters(wire.keys)) == 0
    assert wire.run(dead.trim_letters(wire.keys, written_ms)) == 0


def replay(wire, entry_id, request_id="a.r1"):
    fields = Request(id=request_id, inputs=INPUTS).to_fields()
    return wire.run(dead.replay(wire.keys, TENANT, entry_id, fields))


def test_a_replayed_letter_is_in_ingress_and_gone(wire):
    give_up(wire, "a")
    ((letter_id, _),) = wire.run(listing.latest_heads(wire.keys.dead, "+", 1))
    added = replay(wire, letter_id)
    assert isinstance(added, bytes)
    assert letters(wire) == []
    ((entry_id, flat),) = wire.ask("XRANGE", wire.ingress, "-", "+")
    assert (entry_id, flat[:2]) == (added, [b"id", b"a.r1"])
    assert replay(wire, letter_id) == 0, "somebody else was first"
    assert wire.ask("XLEN", wire.ingress) == 1


def test_a_letter_stays_where_its_model_is_not_deployed(wire):
    give_up(wire, "a")
    ((letter_id, _),) = wire.run(listing.latest_heads(wire.keys.dead, "+", 1))
    wire.ask("DEL", wire.ingress)
    assert replay(wire, letter_id) is None
    assert len(letters(wire)) == 1
    assert not wire.ask("EXISTS", wire.ingress)


def test_a_letter_stays_where_the_ingress_is_no_stream(wire):
    give_up(wire, "a")
    ((letter_id, _),) = wire.run(listing.latest_heads(wire.keys.dead, "+", 1))
    wire.ask("DEL", wire.ingress)
    wire.ask("SET", wire.ingress, "somebody else's")
    with pytest.raises(RefusedError):
        replay(wire, letter_id)
    assert len(letters(wire)) == 1


def test_the_caps_are_those_of_the_contract(wire):
    wire.open("a")
    (work,) = wire.take()
    parts = requests.finish(wire.keys, "w1", [end_dead(wire, work)]).parts
    count = parts[2]
    assert parts[3 + count + 5 : 3 + count + 7] == (
        limits.DEAD_LETTERS_MAX,
        limits.DEAD_BYTES_MAX,
    )
