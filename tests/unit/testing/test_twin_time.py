"""Time on the in-memory twin, by a clock that is moved by hand."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.broker_wire import ANSWER, EXPIRED, REFUSAL, TENANT, TTL_MS, wired
from support.fleet import until
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, ingress, membership, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.testing.twin.executors import MemoryBroker, MemoryExecutor
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire import limits

PATIENCE_S = 20.0


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(clock):
    return MemoryServer(clock)


@pytest.fixture
def wire(server):
    with wired(MemoryBroker(server), "n") as found:
        yield found


def test_the_server_has_the_clocks_time(wire, clock):
    assert wire.run(fleet.server_time()) == clock.wall_ms()
    clock.advance(1.5)
    assert wire.run(fleet.server_time()) == clock.wall_ms()


def test_a_refusal_lives_for_half_a_minute(wire, clock):
    assert wire.send("a", refusal=REFUSAL) is Accepted.REFUSED
    clock.advance(limits.REFUSAL_TTL_MS - 1)
    assert wire.replies("a") == [REFUSAL]
    clock.advance(1)
    assert wire.replies("a") == []


def test_a_tombstone_outlives_the_reply_and_then_the_id_is_free(wire, clock):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    clock.advance(TTL_MS)
    assert wire.replies("a") == []
    assert wire.send("a") is Accepted.DUP
    clock.advance(TTL_MS)
    assert wire.send("a") is Accepted.OK


def test_a_request_is_overdue_from_its_deadline_on(wire, clock):
    wire.open("late", timeout_ms=1_000)
    wire.open("later", timeout_ms=2_000)
    clock.advance(999)
    assert wire.run(requests.overdue(wire.keys, 10)) == []
    clock.advance(1)
    assert wire.run(requests.overdue(wire.keys, 10)) == [f"{TENANT}:late".encode()]
    clock.advance(1_000)
    assert wire.run(requests.overdue(wire.keys, 1)) == [f"{TENANT}:late".encode()]
    assert wire.expire("late") is Finished.ANSWERED
    assert wire.replies("late") == [EXPIRED]


def test_an_entry_that_waited_too_long_is_late(wire, clock):
    entry = wire.enter("a")
    clock.advance(5_000)
    assert wire.accept(wire.item("a", entry, timeout_ms=5_000)) == [Accepted.LATE]


def test_what_a_silent_worker_announced_goes_and_a_beat_brings_it_back(wire, clock):
    wire.run(membership.join(wire.keys, "w1", 3_000, {"room": "1"}))
    clock.advance(2_999)
    wire.run(membership.beat(wire.keys, "w1", 3_000, {}))
    clock.advance(2_999)
    assert wire.run(membership.announcement(wire.keys, "w1")) == {"room": b"1"}
    clock.advance(1)
    assert wire.run(membership.announcement(wire.keys, "w1")) == {}
    assert wire.run(membership.living(wire.keys)) == ["w1"]
    assert wire.run(membership.beat(wire.keys, "w1", 3_000, {"room": "2"})) == 3
    assert wire.run(membership.announcement(wire.keys, "w1")) == {"room": b"2"}


@pytest.mark.parametrize("step_ms", [600_000, -600_000])
def test_a_step_of_the_servers_clock_ends_no_worker(wire, clock, step_ms):
    """As after a failover to a server whose clock is wrong: beats are counters."""
    wire.run(membership.join(wire.keys, "w1", 3_000, {"room": "1"}))
    clock.jump_wall(step_ms)
    assert wire.run(membership.living(wire.keys)) == ["w1"]
    assert wire.run(membership.beat(wire.keys, "w1", 3_000, {"room": "1"})) == 2
    wire.open("a")
    assert [work.id for work in wire.take("w1")] == ["a"]


def test_entries_are_claimed_once_they_were_idle_for_long_enough(wire, clock):
    entry = wire.enter("a")
    clock.advance(999)
    assert wire.run(ingress.claim(wire.ingress, "r2", 1_000, 10)).entry_ids == []
    clock.advance(1)
    claimed = wire.run(ingress.claim(wire.ingress, "r2", 1_000, 10)).entry_ids
    assert claimed == [entry]
    assert wire.run(ingress.claim(wire.ingress, "r1", 1_000, 10)).entry_ids == []


def test_ids_rise_while_the_clock_stands_and_when_it_is_set_back(wire, clock):
    first, second = wire.enter("a"), wire.enter("b")
    clock.jump_wall(-60_000)
    third = wire.enter("c")
    now = int(clock.wall_ms()) + 60_000
    assert [first, second, third] == [f"{now}-{at}".encode() for at in range(3)]


@pytest.fixture
def waiting(server, wire):
    """A command that waits for a bell, on a thread of its own; its future."""
    with ThreadPoolExecutor(1) as pool:
        executor = MemoryExecutor(server, PATIENCE_S)
        future = pool.submit(executor.run, requests.wait_for_bell([wire.bell], 10))
        until(lambda: server.waiting == 1, "it waits")
        yield future
        server.end_waits()


def test_a_wait_ends_when_the_clock_has_passed_its_time(server, clock, waiting):
    clock.advance(9_999)
    server.notice_time()
    assert server.waiting == 1
    clock.advance(1)
    server.notice_time()
    assert waiting.result(PATIENCE_S) is False
    assert server.waiting == 0


def test_all_waits_end_when_the_server_is_told_so(server, waiting):
    server.end_waits()
    assert waiting.result(PATIENCE_S) is False


def test_what_has_expired_takes_no_memory_for_long(wire, server, clock):
    for at in range(5_000):
        wire.run(plain(as_is, "SET", f"n:{at}", ANSWER, "PX", 10))
        clock.advance(1)
    assert len(server._database._slots) < 2_500
