"""Take: room, bells, closed entries; and scripts on a server that forgot them, or that is full."""

from dataclasses import dataclass

import pytest
from support.broker_wire import ANSWER, BUCKETS, EXPIRED, RECORD, TTL_MS, Wire, wired
from support.server import private_server

from batchfleet.broker import fleet, membership, requests
from batchfleet.broker.errors import OutOfMemoryError
from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer

# Taking.


def test_room_is_for_all_streams_together_in_the_order_given(wire):
    for bucket in BUCKETS:
        wire.open(*(f"{bucket}-{at}" for at in range(5)), bucket=bucket)
    wire.join()
    streams = [wire.queue(32), wire.queue(16), wire.queue(64)]
    taken = wire.take(room=8, streams=streams)
    expected = [f"32-{at}" for at in range(5)] + [f"16-{at}" for at in range(3)]
    assert [work.id for work in taken] == expected
    assert [wire.pending(stream) for stream in streams] == [5, 3, 0]


def test_a_request_of_many_rows_counts_for_half_a_batch_at_most(wire):
    wire.open("big", rows=500)
    wire.open("small")
    wire.join()
    assert [work.id for work in wire.take(room=5)] == ["big", "small"]


def test_the_bell_is_rung_again_when_room_runs_out(wire):
    wire.open("a", "b", "c")
    wire.join()
    assert wire.ask("LRANGE", wire.bell, 0, -1) == [b"1"]
    assert wire.run(requests.wait_for_bell([wire.bell], 1))
    assert len(wire.take(room=2)) == 2
    assert wire.ask("LLEN", wire.bell) == 1
    assert len(wire.take(room=2)) == 1
    assert wire.ask("LLEN", wire.bell) == 1
    assert wire.run(requests.wait_for_bell([wire.bell], 1))
    assert wire.take(room=2) == []
    assert wire.ask("LLEN", wire.bell) == 0


def test_entries_of_closed_requests_are_dropped_and_take_no_room(wire):
    names = [f"r{at}" for at in range(40)]
    wire.open(*names)
    for name in names[:37]:
        assert wire.expire(name) is Finished.ANSWERED
    wire.join()
    assert [work.id for work in wire.take(room=3)] == names[37:]
    assert wire.ask("XLEN", wire.queue()) == 3
    assert wire.pending(wire.queue()) == 3


def test_a_stream_that_is_gone_is_passed_over(wire):
    wire.open("a", bucket=64)
    wire.ask("DEL", wire.queue(16))
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]


def test_a_foreign_entry_in_a_work_stream_spoils_only_itself(wire):
    wire.open("a")
    wire.ask("XADD", wire.queue(), "*", "written", "by hand")
    wire.open("b")
    wire.join()
    taken = wire.run(
        requests.take(
            wire.keys, "w1", wire.stamp(), RECORD, fleet.queue_streams(wire.keys, RECORD), 10
        )
    )
    names = [flat[1] for _, entries in taken for _, flat in entries]
    assert [name for name in names if name in (b"a", b"b")] == [b"a", b"b"]


def test_closed_entries_do_not_pile_up_while_nobody_takes(wire):
    """Open requests are bounded by the backlog; the entries of those that expired must be too."""
    backlog = 4
    for at in range(50 * backlog):
        if wire.send(f"r{at}", backlog=backlog) is Accepted.OK:
            wire.expire(f"r{at}")
    assert wire.ask("XLEN", wire.queue()) <= 10 * backlog


# Scripts that the server does not know any more.


def test_a_forgotten_script_is_loaded_again(served_wire):
    wire = served_wire
    wire.ask("SCRIPT", "FLUSH")
    wire.open("a")
    wire.join()
    wire.ask("SCRIPT", "FLUSH")
    (work,) = wire.take()
    wire.ask("SCRIPT", "FLUSH")
    assert wire.settle(work) is Finished.ANSWERED


def test_a_forgotten_script_is_loaded_again_inside_a_pipeline(served_wire):
    wire = served_wire
    wire.open("a", "b")
    wire.join()
    wire.ask("SCRIPT", "FLUSH")
    count, first, length, second = wire.executor.run_all(
        [
            requests.open_requests(wire.keys),
            requests.finish(wire.keys, "", [wire.end("a", EXPIRED)]),
            requests.stream_length(wire.queue()),
            requests.finish(wire.keys, "", [wire.end("b", EXPIRED)]),
        ]
    )
    assert (count, length) == (2, 2)
    assert first == second == [Finished.ANSWERED]


# Memory.


@dataclass
class OwnServer:
    """A server or twin of the test's own, to be filled: it is then over its `maxmemory`."""

    wire: Wire
    twin: MemoryServer | None = None

    def fill(self, *, full=True):
        if self.twin is None:
            self.wire.ask("CONFIG", "SET", "maxmemory", int(full))
        else:
            self.twin.is_full = full


@pytest.fixture(params=["memory", "server"])
def own_server(request):
    if request.param == "memory":
        twin = MemoryServer()
        with wired(MemoryBroker(twin), "full") as wire:
            yield OwnServer(wire, twin)
        return
    with private_server() as server, wired(RedisBroker(server.url), "full") as wire:
        yield OwnServer(wire)


def test_finish_goes_through_when_memory_is_full_and_accept_does_not(own_server):
    wire = own_server.wire
    wire.open("a", "b")
    wire.join()
    work = wire.take(room=1)[0]
    entry = wire.enter("c")
    own_server.fill()
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.expire("b") is Finished.ANSWERED
    with pytest.raises(OutOfMemoryError):
        wire.accept(wire.item("c", entry))
    assert wire.run(membership.leave(wire.keys, "w1"))
    own_server.fill(full=False)
    assert wire.replies("a") == [ANSWER]
    assert wire.accept(wire.item("c", entry)) == [Accepted.OK]


def test_a_worker_continues_beating_and_taking_when_memory_is_full(own_server):
    """Or nothing that waits is ever run, and memory stays full."""
    wire = own_server.wire
    wire.open("a")
    wire.join()
    own_server.fill()
    assert wire.run(requests.overdue(wire.keys, 10)) == []
    assert wire.run(membership.beat(wire.keys, "w1", TTL_MS, {})) > 0
    assert [work.id for work in wire.take()] == ["a"]
