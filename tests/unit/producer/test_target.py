import pytest

from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.producer.target import Target, find_target
from batchfleet.wire.errors import CallerError, SettingsError


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_arguments_come_first(monkeypatch):
    monkeypatch.setenv("BATCHFLEET_REDIS_URL", "redis://set:1/0")
    monkeypatch.setenv("BATCHFLEET_NAMESPACE", "set")
    target = find_target("redis://given:1/0", "given", None)
    assert target == Target(
        broker=RedisBroker("redis://given:1/0"), namespace="given", tenant="default"
    )
    target = find_target(None, None, "mine")
    assert target == Target(broker=RedisBroker("redis://set:1/0"), namespace="set", tenant="mine")


def test_no_server_named_tells_the_remedy():
    with pytest.raises(SettingsError, match="BATCHFLEET_REDIS_URL"):
        find_target(None, None, None)


def test_everything_given_reads_no_environment(monkeypatch):
    monkeypatch.setenv("BATCHFLEET_LEASE_MS", "nonsense")
    assert find_target("redis://given:1/0", "n", "t").tenant == "t"
    with pytest.raises(SettingsError, match="lease_ms"):
        find_target("redis://given:1/0", "n", None)


def test_names_are_checked():
    with pytest.raises(CallerError, match="namespace"):
        find_target("redis://given:1/0", "a:b", "t")
