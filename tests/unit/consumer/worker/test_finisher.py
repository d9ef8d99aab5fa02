"""Settling on the twin: what cannot be parked for another try is answered with its failure."""

import pytest
from support.broker_wire import RECORD, wired
from support.loops import Watch
from support.worker_context import worker_context

from batchfleet.broker import fleet
from batchfleet.consumer.batching.state import EndedRequest, HeldRequest, Lane, Placement
from batchfleet.consumer.link.protocol import Answer, Failure
from batchfleet.consumer.worker.finisher import Finisher
from batchfleet.consumer.worker.shared_state import SharedState
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.reply import decode_reply


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "bf") as found:
        yield found


def test_a_letter_that_cannot_be_written_is_an_error_to_wait_for(wire):
    """Its request is neither answered nor ended; trying again at once would never end."""
    watch = Watch()
    wire.open("a", "b")
    wire.join("w1")
    poison, other = (
        HeldRequest(number, work, Lane(1, "m", RECORD), Placement(1, 16), 0.0, deadline_ms=1e15)
        for number, work in enumerate(wire.take("w1"))
    )
    kinds = {poison: ErrorKind.POISON, other: ErrorKind.MODEL_ERROR}
    ended = [
        EndedRequest(h, None, Failure(h.number, kind.code, "it", [])) for h, kind in kinds.items()
    ]
    wire.ask("SET", wire.keys.dead, "foreign")
    finisher = Finisher(
        SharedState(worker_context(watch, wire.broker), "w1"), wire.executor, lambda _: []
    )
    left, errors = finisher.settle(ended)
    assert ([one.held for one in left], [error.code for error in errors]) == (
        [poison],
        ["WRONGTYPE"],
    )
    assert (wire.replies("a"), len(wire.replies("b"))) == ([], 1)
    assert wire.pending(wire.queue()) == 1
    wire.ask("DEL", wire.keys.dead)
    assert finisher.settle(left) == ([], [])
    assert decode_reply(wire.replies("a")[0]).error["name"] == "poison"


@pytest.mark.parametrize("name", ["later", "parked"])
def test_what_cannot_be_parked_is_answered_and_holds_up_nobody(wire, name):
    watch = Watch()
    wire.open("a", "b", retries=2)
    wire.join("w1")
    lane = Lane(1, "m", RECORD)
    ended = []
    for number, work in enumerate(wire.take("w1")):
        held = HeldRequest(number, work, lane, Placement(1, 16), 0.0, deadline_ms=1e15)
        failure = Failure(number, ErrorKind.DEVICE_MEMORY.code, "no memory", [])
        ended.append(EndedRequest(held, None, failure))
    wire.ask("SET", getattr(wire.keys, name), "foreign")
    finisher = Finisher(
        SharedState(worker_context(watch, wire.broker), "w1"), wire.executor, lambda _: []
    )
    assert finisher.settle(ended) == ([], [])
    errors = [decode_reply(reply).error["name"] for id_ in "ab" for reply in wire.replies(id_)]
    assert errors == ["device_memory"] * 2
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)
    assert "request.retried" not in watch.log.names()


def test_what_has_ended_is_counted_with_the_device_time_that_it_took(wire):
    wire.open("a", "b", "c", rows=3)
    wire.join("w1")
    lane = Lane(1, "m", RECORD)
    done, failed, bad = (
        HeldRequest(number, work, lane, Placement(1, 16), 0.0, deadline_ms=1e15)
        for number, work in enumerate(wire.take("w1"))
    )
    done.device_ms, failed.device_ms = 2.5, 1.25  # and the last has never run
    ended = [
        EndedRequest(done, Answer(done.number, b"[]", 0.0), None),
        EndedRequest(failed, None, Failure(failed.number, ErrorKind.MODEL_ERROR.code, "it", [])),
        EndedRequest(bad, None, Failure(bad.number, ErrorKind.BAD_INPUTS.code, "it", [])),
    ]
    worker = SharedState(worker_context(Watch(), wire.broker), "w1")
    assert Finisher(worker, wire.executor, lambda _: []).settle(ended) == ([], [])
    found = wire.run(fleet.stats(wire.keys))["1"]
    assert (found.ok, found.model, found.caller) == (1, 1, 1)
    assert (found.rows, found.device_ms) == (6, 3.75)
    assert sum(found.latency) == 1
