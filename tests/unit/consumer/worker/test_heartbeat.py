"""The heartbeat on the twin: it beats for what it serves, and never again once it was buried."""

import threading

import pytest
from support.broker_wire import RECORD, TENANT
from support.loops import Watch
from support.worker_context import worker_context

from batchfleet.broker import fleet, membership
from batchfleet.broker.commands import as_is, plain
from batchfleet.consumer.worker.heartbeat import Heartbeat
from batchfleet.service.settings import Settings
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("bf", "m")


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def clock(watch):
    return watch.clock


@pytest.fixture
def context(watch):
    return worker_context(watch, MemoryBroker(MemoryServer()))


@pytest.fixture
def executor(context):
    with context.broker.connect("test") as found:
        streams = fleet.queue_streams(KEYS, RECORD)
        found.run(fleet.deploy(KEYS, RECORD, streams, "n", [TENANT]))
        yield found


@pytest.fixture
def beats():
    """The moments of the beats that went through."""
    return []


@pytest.fixture
def heartbeat(executor, context, beats):
    found = Heartbeat(executor, context, "w1", threading.Event(), beats.append)
    found.announce({KEYS: {"room": "1"}})
    return found


def counter(executor):
    return executor.run(membership.beat_counters(KEYS)).get("w1")


def test_each_beat_moves_the_counter_and_tells_when_it_was_sent(heartbeat, executor, clock, beats):
    for at in range(3):
        heartbeat.beat_once()
        assert counter(executor) == at + 1
        clock.advance(1_000)
    assert [beat - beats[0] for beat in beats] == [0, 1_000, 2_000]
    assert not heartbeat.fenced.is_set()


def test_a_buried_worker_stops_and_its_name_does_not_come_back(heartbeat, executor, beats):
    heartbeat.beat_once()
    assert executor.run(membership.bury(KEYS, "w1", 1.0))
    for _ in range(2):
        heartbeat.beat_once()
        assert heartbeat.fenced.is_set()
        assert counter(executor) is None
    assert len(beats) == 1
    assert heartbeat.step() is None


SAFE_MS = Settings().lease_ms * 2 / 3


@pytest.mark.parametrize("what", [KEYS.workers, f"{KEYS.prefix}worker:w1"])
def test_who_was_removed_by_no_peer_enters_again(heartbeat, executor, clock, beats, watch, what):
    """Somebody else did it, or a server that came back empty: nothing that it holds is lost."""
    heartbeat.beat_once()
    clock.advance(SAFE_MS)
    executor.run_all([plain(as_is, "DEL", KEYS.workers), plain(as_is, "DEL", what)])
    heartbeat.beat_once()
    assert counter(executor) == 1
    assert not heartbeat.fenced.is_set()
    assert executor.run(membership.announcement(KEYS, "w1"))["room"] == b"1"
    heartbeat.beat_once()
    assert counter(executor) == 2
    assert len(beats) == 3
    assert [name for name, _ in watch.log.lines] == ["worker.rejoined"]


def test_who_may_have_been_buried_does_not_enter_again(heartbeat, executor, clock):
    """However it looks: buried, and forgotten since."""
    heartbeat.beat_once()
    clock.advance(SAFE_MS + 1)
    executor.run(plain(as_is, "DEL", KEYS.workers))
    heartbeat.beat_once()
    assert heartbeat.fenced.is_set()
    assert counter(executor) is None


@pytest.mark.parametrize("was_away", [False, True])
def test_a_foreign_key_buries_nobody_however_long_it_lies_there(
    heartbeat, executor, clock, was_away
):
    heartbeat.beat_once()
    spoil(executor, KEYS.workers)
    clock.advance((SAFE_MS + 1) * was_away)
    for _ in range(10):
        clock.advance(SAFE_MS / 2)
        heartbeat.beat_once()
    executor.run(plain(as_is, "DEL", KEYS.workers))
    heartbeat.beat_once()
    assert heartbeat.fenced.is_set() is was_away, "who knows what came before the key"


def test_nobody_enters_a_model_again_whose_record_is_gone(heartbeat, executor):
    """Until routers have put it back: else the key would outlive a model that was undeployed."""
    heartbeat.beat_once()
    record = executor.run(fleet.deploy_hash(KEYS))
    executor.run(plain(as_is, "DEL", KEYS.workers, KEYS.deploy))
    heartbeat.beat_once()
    assert counter(executor) is None
    assert not heartbeat.fenced.is_set()
    executor.run(fleet.mend(KEYS, record, [TENANT], fleet.queue_streams(KEYS, RECORD), "n"))
    heartbeat.beat_once()
    assert counter(executor) == 1


def test_a_model_that_was_undeployed_fences_nobody(heartbeat, executor):
    heartbeat.beat_once()
    executor.run(fleet.undeploy(KEYS, [KEYS.workers], forced=True))
    heartbeat.beat_once()
    assert not heartbeat.fenced.is_set()


def test_leaving_hands_over_at_once(heartbeat, executor):
    heartbeat.beat_once()
    heartbeat.leave_all()
    assert executor.run(membership.lost(KEYS)) == ["w1"]
    assert counter(executor) is None


# Keys of the wrong type.

OTHER = ModelKeys("bf", "other")


@pytest.fixture
def two_models(heartbeat, executor):
    """A heartbeat of two models; the keys of the first are spoilt by the test."""
    streams = fleet.queue_streams(OTHER, RECORD)
    executor.run(fleet.deploy(OTHER, RECORD, streams, "n", [TENANT]))
    heartbeat.announce({KEYS: {"room": "1"}, OTHER: {"room": "1"}})
    return heartbeat


def spoil(executor, key):
    executor.run_all([plain(as_is, "UNLINK", key), plain(as_is, "SET", key, "foreign")])


def told_of(watch):
    """Models of which it was told that somebody else has spoilt them."""
    return [fields["model"] for name, fields in watch.log.lines if name == "stream.unusable"]


@pytest.mark.parametrize("joined", [False, True])
def test_a_foreign_key_of_one_model_stops_the_beat_of_no_other(
    two_models, executor, beats, watch, joined
):
    if joined:
        two_models.beat_once()
    spoil(executor, KEYS.workers)
    for _ in range(3):
        assert two_models.step() == 1.0
    assert executor.run(membership.beat_counters(OTHER)) == {"w1": 3.0 + joined}
    assert len(beats) == 3 + joined, "its lease begins again, or it would start nothing any more"
    assert not two_models.fenced.is_set()
    assert two_models.has_joined(KEYS.model) is joined
    assert told_of(watch) == ["m"], "told once"


def test_a_model_is_joined_once_its_foreign_key_is_gone(two_models, executor, watch):
    spoil(executor, KEYS.workers)
    two_models.beat_once()
    executor.run(plain(as_is, "UNLINK", KEYS.workers))
    two_models.beat_once()
    assert counter(executor) == 1
    spoil(executor, KEYS.workers)
    two_models.beat_once()
    assert told_of(watch) == ["m", "m"], "it is news again"


def test_leaving_continues_behind_a_foreign_key(two_models, executor):
    two_models.beat_once()
    spoil(executor, KEYS.workers)
    two_models.leave_all()
    assert executor.run(membership.lost(OTHER)) == ["w1"]
