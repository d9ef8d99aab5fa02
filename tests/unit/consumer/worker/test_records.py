"""The deploy records that a worker goes by, on the twin of the server."""

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Watch

from batchfleet.broker import fleet
from batchfleet.consumer.worker.records import DeployRecords
from batchfleet.service.events import Events
from batchfleet.service.settings import Settings
from batchfleet.service.steps import Steps
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.keys import ModelKeys, models_key

NS = "n"
OTHER = ModelKeys(NS, "other")
MARK_MS = fleet.UNDEPLOYED_MARK_MS


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def wire(watch):
    with wired(MemoryBroker(MemoryServer(watch.clock)), NS) as found:
        found.run(fleet.deploy(OTHER, RECORD, fleet.queue_streams(OTHER, RECORD), "n", [TENANT]))
        found.run(fleet.enlist_models(NS, ["m", "other"]))
        yield found


class Reader:
    """The records as a keeper reads them, each time a little later."""

    def __init__(self, wire, watch, **settings):
        steps = Steps(watch.outage)
        self._records = DeployRecords(Settings(namespace=NS, **settings), Events(watch.log), steps)
        self._wire, self._watch = wire, watch

    def read(self, later_ms=1_000):
        self._watch.clock.advance(later_ms)
        now_ms = self._watch.clock.monotonic_ms()
        return sorted(self._records.read(self._wire.executor, now_ms))


@pytest.fixture
def reader(wire, watch):
    found = Reader(wire, watch)
    assert found.read() == ["m", "other"]
    return found


@pytest.mark.parametrize(
    "lost", [(OTHER.deploy,), (models_key(NS),), (OTHER.deploy, models_key(NS))]
)
def test_what_the_server_has_lost_counts_as_it_was(wire, reader, lost):
    """No model is unloaded for it: loading may take minutes, and routers put it back in one."""
    wire.ask("DEL", *lost)
    for _ in range(3):
        assert reader.read() == ["m", "other"]


def test_what_was_taken_out_of_service_is_gone_at_once(wire, reader):
    streams = [*fleet.queue_streams(OTHER, RECORD), OTHER.ingress(TENANT)]
    assert wire.run(fleet.undeploy(OTHER, streams, forced=False))[0]
    assert reader.read() == ["m"]
    wire.run(fleet.delist_model(NS, "other"))
    assert reader.read() == ["m"]


def test_a_mark_after_the_loss_counts(wire, reader):
    wire.ask("DEL", OTHER.deploy)
    assert reader.read() == ["m", "other"]
    assert wire.run(fleet.undeploy(OTHER, [], forced=False))[0]
    assert reader.read() == ["m"]


def test_what_was_lost_is_given_up_before_its_mark_would_be_gone(wire, reader):
    wire.ask("DEL", OTHER.deploy)
    assert reader.read(MARK_MS / 2 - 1) == ["m", "other"]
    assert reader.read(2) == ["m"]
    assert reader.read() == ["m"]


@pytest.mark.parametrize("key", [OTHER.deploy, models_key(NS)])
def test_a_foreign_key_says_nothing(wire, watch, reader, key):
    wire.ask("DEL", key)
    wire.ask("SET", key, "x")
    for _ in range(3):
        assert reader.read(MARK_MS) == ["m", "other"]
    assert watch.log.names() == ["server.refused"] * 3, "once a minute"


def test_an_ill_formed_record_is_not_served_and_told_once(wire, watch, reader):
    wire.ask("HSET", OTHER.deploy, "intake", "what?")
    assert [reader.read() for _ in range(3)] == [["m"]] * 3
    assert watch.log.names() == ["model.record_unreadable"]


def test_only_models_that_match_are_read(wire, watch):
    assert Reader(wire, watch, models="o*, x").read() == ["other"]
