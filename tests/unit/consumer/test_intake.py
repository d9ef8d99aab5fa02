"""Intake over the in-memory twin of the broker: what a refused take means."""

import threading

import pytest
from support.broker_wire import RECORD, wired

from batchfleet.broker.memory.executors import MemoryBroker
from batchfleet.broker.memory.server import MemoryServer
from batchfleet.consumer.held import Lane
from batchfleet.consumer.intake import Intake, Offer
from batchfleet.service.fault_points import FaultPoints


class Desk:
    """A worker that has room, and that the broker does not know."""

    name = "buried"
    taking = True

    def __init__(self, on_offer):
        self.stopping = threading.Event()
        self.is_fenced = False
        self._on_offer = on_offer

    def offer(self, model, *, wait):  # noqa: ARG002 - the port's shape
        self._on_offer()
        return Offer([(Lane(1, model, RECORD), 8)], crowded=False)

    def inside_note(self, _):
        return []

    def server_now_ms(self):
        return 0.0

    def fence(self):
        self.is_fenced = True


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_a_refused_take_fences_a_worker_unless_it_left_the_model_itself(is_withdrawn):
    over = threading.Event()
    desk = Desk(over.set if is_withdrawn else lambda: None)
    with wired(MemoryBroker(MemoryServer()), "n") as wire:
        Intake(desk, wire.keys, wire.executor, over, FaultPoints()).run()
    assert desk.is_fenced is not is_withdrawn
