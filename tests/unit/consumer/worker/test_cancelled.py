"""The look whether what a worker holds is still open."""

import pytest
from support.broker_wire import TENANT, wired
from support.loops import Watch

from batchfleet.consumer.worker.cancelled import CancelWatch
from batchfleet.service.steps import Steps
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer


class Holder:
    """A worker that holds some requests."""

    def __init__(self, *ids):
        self.members = [f"{TENANT}:{one}" for one in ids]
        self.asked = []
        self.dropped = []

    def not_begun(self, model, taken_before_ms):
        self.asked.append(taken_before_ms)
        return self.members if model == "m" else []

    def drop_closed(self, model, closed):
        self.dropped.append((model, sorted(closed)))


@pytest.fixture
def wire():
    with wired(MemoryBroker(MemoryServer()), "n") as found:
        yield found


def test_what_somebody_else_ended_is_dropped(wire):
    wire.open("a", "b", "c")
    wire.expire("a")
    wire.expire("c")
    holder = Holder("a", "b", "c", "never")
    assert CancelWatch(holder, wire.executor, "n", Steps(Watch().outage)).tick(
        ["other", "m"], 1_000
    )
    assert holder.dropped == [("m", ["default:a", "default:c", "default:never"])]


def test_open_requests_are_left_alone(wire):
    wire.open("a")
    holder = Holder("a")
    assert CancelWatch(holder, wire.executor, "n", Steps(Watch().outage)).tick(["m"], 1_000)
    assert holder.dropped == []


def test_it_looks_every_quarter_of_a_second_at_what_was_held_as_long(wire):
    wire.open("a")
    holder = Holder("a")
    watch = CancelWatch(holder, wire.executor, "n", Steps(Watch().outage))
    looks = [watch.tick(["m"], now_ms) for now_ms in (1_000, 1_100, 1_249, 1_250)]
    assert looks == [True, False, False, True]
    assert holder.asked == [750, 1_000]


def test_the_server_is_not_asked_about_nothing(wire):
    holder = Holder()
    assert not CancelWatch(holder, wire.executor, "n", Steps(Watch().outage)).tick(["m"], 1_000)


def test_a_foreign_key_of_one_model_does_not_keep_it_from_looking_at_the_others(wire):
    wire.open("a")
    wire.expire("a")

    holder = Holder("a")
    holder.not_begun = lambda *_: holder.members
    wire.ask("SET", "n:{foreign}:due", "x")
    watch = CancelWatch(holder, wire.executor, "n", Steps(Watch().outage))
    assert watch.tick(["foreign", "m"], 1_000)
    assert holder.dropped == [("m", [f"{TENANT}:a"])]
