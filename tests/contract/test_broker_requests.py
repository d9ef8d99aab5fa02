"""Accept and finish: one answer whatever comes when, one interleaving a test, on every broker.

On the cluster node a script that touches an undeclared key, or keys of two slots, fails.
"""

import itertools
import secrets

import pytest
from support.broker_wire import ANSWER, EXPIRED, REFUSAL, TENANT, TTL_MS

from batchfleet.broker import membership, requests
from batchfleet.broker.errors import FencedError
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.wire import limits

# One answer, whoever comes when.


def test_a_late_copy_joins_the_finished_request(wire):
    first, second = wire.enter("a"), wire.enter("a")
    assert wire.accept(wire.item("a", first)) == [Accepted.OK]
    wire.join()
    (work,) = wire.take()
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.accept(wire.item("a", second)) == [Accepted.DUP]
    assert wire.replies("a") == [ANSWER]
    assert wire.take() == []
    assert wire.ingress_left() == (0, 0)


def test_copies_in_one_call_and_in_two_run_once(wire):
    entries = [wire.enter("a") for _ in range(3)]
    items = [wire.item("a", entry) for entry in entries]
    assert wire.accept(*items[:2]) == [Accepted.OK, Accepted.DUP]
    assert wire.accept(items[2]) == [Accepted.DUP]
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]
    assert wire.ingress_left() == (0, 0)


def test_an_invalid_entry_with_the_id_of_an_open_request_writes_nothing(wire):
    wire.open("a")
    entry = wire.enter("a")
    assert wire.accept(wire.item("a", entry, refusal=REFUSAL)) == [Accepted.DUP]
    assert wire.replies("a") == []
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.replies("a") == [ANSWER]
    assert wire.send("a", refusal=REFUSAL) is Accepted.DUP
    assert wire.replies("a") == [ANSWER]


def test_a_refused_id_may_be_sent_again_and_its_refusal_goes(wire):
    assert wire.send("a", refusal=REFUSAL) is Accepted.REFUSED
    assert wire.send("a", refusal=b"again") is Accepted.REFUSED
    assert wire.replies("a") == [b"again"]
    wire.open("a")
    assert wire.replies("a") == []
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.replies("a") == [ANSWER]


def test_an_expired_request_is_not_answered_by_its_worker(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    assert wire.expire("a") is Finished.ANSWERED
    assert wire.settle(work) is Finished.CLOSED
    assert wire.replies("a") == [EXPIRED]
    assert wire.ask("XLEN", work.stream) == 0
    assert wire.pending(work.stream) == 0


def test_an_answered_request_does_not_expire(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.expire("a") is Finished.CLOSED
    assert wire.settle(work) is Finished.NOT_MINE
    assert wire.replies("a") == [ANSWER]


def test_the_moved_twin_of_an_expired_request_writes_nothing(wire):
    """A sweeper acts on an entry that has moved: the twin's settling comes second."""
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    twin = wire.ask("XADD", work.stream, "*", "id", "a", "tenant", TENANT, "inputs", "x")
    wire.ask("XACK", work.stream, "worker", work.entry_id)
    wire.ask("XDEL", work.stream, work.entry_id)
    wire.ask("XREADGROUP", "GROUP", "worker", "w1", "STREAMS", work.stream, ">")
    assert wire.expire("a") is Finished.ANSWERED
    assert wire.finish("w1", wire.end("a", ANSWER, work.stream, twin)) == [Finished.CLOSED]
    assert wire.replies("a") == [EXPIRED]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_one_terminal_item_whatever_comes_first(wire, order):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    steps = [
        lambda: wire.settle(work),
        lambda: wire.expire("a"),
        lambda: wire.send("a"),
        lambda: wire.send("a", refusal=REFUSAL),
    ]
    for at in order:
        steps[at]()
    first = min(order.index(0), order.index(1))
    assert wire.replies("a") == [ANSWER if order[first] == 0 else EXPIRED]
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert wire.take() == []
    assert wire.ask("XLEN", wire.queue()) == 0
    assert wire.ingress_left() == (0, 0)


# Who may take and settle.


def test_take_is_refused_for_a_worker_that_was_buried(wire):
    wire.join()
    wire.open("a")
    wire.ask("ZREM", wire.keys.workers, "w1")
    wire.ask("SADD", wire.keys.lost, "w1")
    with pytest.raises(FencedError):
        wire.take()
    assert wire.pending(wire.queue()) == 0
    assert wire.run(membership.beat(wire.keys, "w1", TTL_MS, {})) == 0
    assert not wire.run(membership.join(wire.keys, "w1", TTL_MS, {}))


def test_take_is_refused_for_a_worker_that_left(wire):
    wire.join()
    assert wire.run(membership.leave(wire.keys, "w1"))
    assert not wire.run(membership.leave(wire.keys, "w1"))
    with pytest.raises(FencedError):
        wire.take()
    assert wire.ask("SMEMBERS", wire.keys.lost) == [b"w1"]


def test_only_the_holder_of_an_entry_settles_it(wire):
    wire.open("a")
    wire.join("w1")
    (work,) = wire.take("w1")
    assert wire.settle(work, worker="w2") is Finished.NOT_MINE
    assert wire.replies("a") == []
    assert wire.settle(work, worker="w1") is Finished.ANSWERED


def test_a_reply_key_of_the_wrong_type_spoils_nothing(wire):
    wire.open("a", "b", "c")
    wire.join()
    works = wire.take()
    wire.ask("XADD", wire.reply_key("b"), "*", "not", "ours")
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in works]
    assert wire.finish("w1", *ends) == [Finished.ANSWERED] * 3
    assert [wire.replies(name) for name in "abc"] == [[ANSWER]] * 3
    assert wire.ask("PTTL", wire.reply_key("b")) > 0
    assert wire.pending(wire.queue()) == 0


def test_a_stream_that_is_gone_spoils_only_its_own_items(wire):
    wire.open("a", "b", bucket=16)
    wire.open("c", bucket=32)
    wire.join()
    works = wire.take()
    wire.ask("DEL", wire.queue(32))
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in works]
    outcomes = dict(zip((work.id for work in works), wire.finish("w1", *ends), strict=True))
    assert outcomes == {
        "a": Finished.ANSWERED,
        "b": Finished.ANSWERED,
        "c": Finished.NOT_MINE,
    }
    assert wire.expire("c") is Finished.ANSWERED


# Accepting.


def test_a_removed_work_stream_is_not_made_again(wire):
    wire.ask("DEL", wire.queue())
    entry = wire.enter("a")
    assert wire.accept(wire.item("a", entry)) == [Accepted.STALE]
    assert not wire.ask("EXISTS", wire.queue())
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert wire.ingress_left() == (1, 1)
    assert wire.accept(wire.item("a", entry, bucket=32)) == [Accepted.OK]


def test_an_entry_from_the_future_is_told_and_kept(wire):
    ahead = wire.now_ms() + requests.CLOCK_TOLERANCE_MS + 60_000
    entry = wire.enter("a", entry_id=f"{ahead}-0")
    assert wire.accept(wire.item("a", entry)) == [Accepted.CLOCK]
    assert wire.ingress_left() == (1, 1)
    assert wire.accept(wire.item("a", entry, refusal=REFUSAL)) == [Accepted.REFUSED]
    assert wire.replies("a") == [REFUSAL]


def test_an_entry_a_little_ahead_gets_its_deadline_from_the_servers_clock(wire):
    ahead = wire.now_ms() + requests.CLOCK_TOLERANCE_MS // 2
    entry = wire.enter("a", entry_id=f"{ahead}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=60_000)) == [Accepted.OK]
    deadline = wire.run(requests.deadline(wire.keys, TENANT, "a"))
    assert deadline <= wire.now_ms() + 60_000 < ahead + 60_000


def test_the_deadline_counts_from_the_entry_not_from_acceptance(wire):
    long_ago = wire.now_ms() - 10_000
    entry = wire.enter("a", entry_id=f"{long_ago}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=30_000)) == [Accepted.OK]
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) == long_ago + 30_000
    wire.join()
    (work,) = wire.take()
    assert work.deadline_ms == long_ago + 30_000


def test_an_entry_past_its_deadline_is_late(wire):
    entry = wire.enter("a", entry_id=f"{wire.now_ms() - 10_000}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=5_000)) == [Accepted.LATE]
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert wire.ingress_left() == (1, 1)


def test_a_full_backlog_is_busy_and_keeps_the_entry(wire):
    wire.open("a", "b", backlog=2)
    entry = wire.enter("c")
    assert wire.accept(wire.item("c", entry), backlog=2) == [Accepted.BUSY]
    assert wire.ingress_left() == (1, 1)
    wire.expire("a")
    assert wire.accept(wire.item("c", entry), backlog=2) == [Accepted.OK]


def test_each_item_of_an_accept_call_stands_alone(wire):
    wire.open("dup")
    wire.ask("DEL", wire.queue(64))
    names = ("ok", "dup", "refused", "stale", "gone")
    entries = {name: wire.enter(name) for name in names}
    wire.ask("XDEL", wire.ingress, entries["gone"])
    large = b"x" * (limits.COPY_IN_SERVER_BYTES + 1)
    outcomes = wire.accept(
        wire.item("ok", entries["ok"]),
        wire.item("dup", entries["dup"]),
        wire.item("refused", entries["refused"], refusal=REFUSAL),
        wire.item("stale", entries["stale"], bucket=64),
        wire.item("gone", entries["gone"], inputs=large),
    )
    assert outcomes == [
        Accepted.OK,
        Accepted.DUP,
        Accepted.REFUSED,
        Accepted.STALE,
        Accepted.GONE,
    ]
    assert wire.ingress_left() == (1, 1)


def test_large_inputs_are_copied_inside_the_server(wire):
    large = secrets.token_bytes(4 * limits.COPY_IN_SERVER_BYTES)
    command = requests.accept(
        wire.keys,
        wire.ingress,
        wire.stamp(),
        100,
        [wire.item("a", wire.enter("a", large), inputs=large)],
    )
    assert sum(len(part) for part in command.parts if isinstance(part, bytes)) < len(large)
    assert wire.run(command)[1] == [Accepted.OK]
    wire.join()
    (work,) = wire.take()
    assert work.inputs == large


def test_refusals_live_for_half_a_minute_and_leave_no_tombstone(wire):
    assert wire.send("a", refusal=REFUSAL) is Accepted.REFUSED
    assert 0 < wire.ask("PTTL", wire.reply_key("a")) <= 30_000
    assert not wire.ask("EXISTS", wire.tombstone("a"))
    assert wire.ask("ZCARD", wire.keys.due) == 0


def test_an_answer_and_its_tombstone_live_as_long_as_was_asked(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert TTL_MS - 5_000 < wire.ask("PTTL", wire.reply_key("a")) <= TTL_MS
    assert 2 * TTL_MS - 5_000 < wire.ask("PTTL", wire.tombstone("a")) <= 2 * TTL_MS
    assert wire.run(requests.tombstone(wire.keys, TENANT, "a")) == "ok"


def test_a_tombstone_outlives_a_reply_that_was_taken(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.ask("LPOP", wire.reply_key("a")) == ANSWER
    assert wire.send("a") is Accepted.DUP
    assert wire.replies("a") == []
