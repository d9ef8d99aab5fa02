"""Settling on the twin: what cannot be parked for another try is answered with its failure."""

import pytest
from support.broker_wire import RECORD, wired
from support.loops import Watch

from batchfleet.broker.memory.executors import MemoryBroker
from batchfleet.broker.memory.server import MemoryServer
from batchfleet.consumer.context import WorkerContext
from batchfleet.consumer.held import Ended, Held, Lane, Placement
from batchfleet.consumer.protocol import Failure
from batchfleet.consumer.settler import Settler
from batchfleet.service.events import Events
from batchfleet.service.settings import Settings
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.reply import decode_reply


class Teller:
    """The worker that settles."""

    name = "w1"
    server_offset_ms = 0.0

    def __init__(self, watch, broker):
        self._clock = watch.clock
        self.context = WorkerContext(
            settings=Settings(),
            events=Events(watch.log),
            clock=watch.clock,
            watchdog=watch.watchdog,
            broker=broker,
            open_link=lambda _: None,
        )

    def now_ms(self):
        return self._clock.monotonic_ms()

    def inside_note(self, _):
        return []


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "bf") as found:
        yield found


@pytest.mark.parametrize("name", ["later", "parked"])
def test_what_cannot_be_parked_is_answered_and_holds_up_nobody(wire, name):
    watch = Watch()
    wire.open("a", "b", retries=2)
    wire.join("w1")
    lane = Lane(1, "m", RECORD)
    ended = []
    for number, work in enumerate(wire.take("w1")):
        held = Held(number, work, lane, Placement(1, 16), 0.0, deadline_ms=1e15)
        failure = Failure(number, ErrorKind.DEVICE_MEMORY.code, "no memory", [])
        ended.append(Ended(held, None, failure))
    wire.ask("SET", getattr(wire.keys, name), "foreign")
    settler = Settler(Teller(watch, wire.broker), wire.executor)
    assert settler.settle(ended) == ([], [])
    errors = [decode_reply(reply).error["name"] for id_ in "ab" for reply in wire.replies(id_)]
    assert errors == ["device_memory"] * 2
    assert (wire.ask("XLEN", wire.queue()), wire.pending(wire.queue())) == (0, 0)
    assert "request.retried" not in watch.log.names()
