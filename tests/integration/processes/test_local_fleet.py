"""How a fleet on one machine starts: what it waits for, and for how long."""

import os
import sys

import pytest
import redis
from support.manual_clock import ManualClock
from support.stub_fleet import deploy_model

from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.ops import local_fleet
from batchfleet.ops.children import ProgramError
from batchfleet.ops.local_fleet import LocalFleet, ProcessContext
from batchfleet.ops.starting import START_MS, deployments_in
from batchfleet.service.clock import SystemClock
from batchfleet.service.events import Events
from batchfleet.service.lifecycle import StopSignal
from batchfleet.service.settings import Settings

NEVER = "import signal; signal.sigwait([signal.SIGTERM])"


class LeapingClock(ManualClock):
    """Each look at it is a minute later."""

    def monotonic_ms(self):
        self.advance(60_000)
        return super().monotonic_ms()


@pytest.fixture
def settings(redis_server, namespace):
    return Settings(redis_url=redis_server.socket_url, namespace=namespace, models="m,slow-*")


@pytest.fixture
def fleet(settings, monkeypatch):
    """A fleet whose programs run a line of Python, by their kind."""
    stop = StopSignal()

    def start(clock=None, **lines):
        process = ProcessContext(
            environ={"PATH": os.defpath}, clock=clock or SystemClock(), events=Events(), stop=stop
        )
        monkeypatch.setattr(
            local_fleet, "program_command", lambda kind: [sys.executable, "-c", lines[kind]]
        )
        return LocalFleet(settings, None, process), stop

    return start


def test_it_waits_for_as_long_as_all_loads_may_take(fleet, redis_url, namespace):
    deploy_model(redis_url, namespace, "m")  # whose load_ms is ten minutes
    deploy_model(redis_url, namespace, "slow-1")
    deploy_model(redis_url, namespace, "other")
    local, _ = fleet(LeapingClock(), router=NEVER, consumer=NEVER, jobs=NEVER)
    told = []
    with local, pytest.raises(ProgramError, match="router was not ready after 1380 s"):
        local.start_programs(told.append)
    assert told
    assert START_MS + 2 * 600_000 == 1_380_000


def test_a_program_that_ends_is_noticed_though_another_is_not_ready(fleet):
    local, _ = fleet(router=NEVER, consumer="raise SystemExit(7)", jobs=NEVER)
    with local, pytest.raises(ProgramError, match="consumer 1 exited with code 7"):
        local.start_programs()


def test_it_stops_waiting_when_everything_shall_stop(fleet):
    local, stop = fleet(router=NEVER, consumer=NEVER, jobs=NEVER)
    stop.set()
    with local:
        assert local.start_programs() is False


def test_models_whose_record_cannot_be_read_are_not_waited_for(
    settings, redis_url, namespace, server
):
    deploy_model(redis_url, namespace, "m")
    keys = deploy_model(redis_url, namespace, "slow-2")
    server.hset(keys.deploy, "stable", "9")
    with BlockingExecutor(settings.redis_url, "t") as executor:
        assert [one.model for one in deployments_in(executor, settings)] == ["m"]


@pytest.fixture
def server(redis_url):
    with redis.Redis.from_url(redis_url, socket_timeout=10, retry=None) as connection:
        yield connection
