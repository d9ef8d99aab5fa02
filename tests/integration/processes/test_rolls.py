"""Rolls by real programs: routers, workers, jobs workers, under steady load."""

import threading
from dataclasses import replace

import orjson
import pytest
from support.fleet import draft_of, until

from batchfleet.ops.rolls.commands import Wish, past_rolls, start
from batchfleet.ops.rolls.observing import look_at
from batchfleet.ops.rolls.plan import Plan
from batchfleet.ops.rolls.state import Phase
from batchfleet.ops.rolls.steps import StepContext
from batchfleet.producer.client import Client
from batchfleet.wire.errors import RequestError

MODEL = "rolled"
BRIEF = Plan(weights=(10.0, 50.0, 100.0), hold_s=1.0, min_samples=20)
PATIENCE_S = 60.0


class Load:
    """Requests that name no version, as fast as two callers get answers."""

    def __init__(self, fleet):
        self.versions, self.errors = [], []
        self._fleet = fleet
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]

    def _run(self):
        with Client(self._fleet.url, namespace=self._fleet.namespace) as client:
            while not self._is_over.is_set():
                try:
                    self.versions.append(client.infer(MODEL, "hello").version)
                except RequestError as error:
                    self.errors.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def rolling(fleet):
    """A fleet that serves version 1 by two workers, and has version 2 in its store."""
    fleet.bring_up(draft_of("echo", MODEL), workers=2)
    publish(fleet, "2")
    fleet.start("jobs").wait_until_ready()
    return fleet


def publish(fleet, version, **changes):
    draft = draft_of("echo", MODEL, **changes)
    return fleet.store.publish(replace(draft, version=version), {}).record()


def record(fleet, version):
    return fleet.store.manifest(MODEL, version).record()


def begin(fleet, version="2", plan=BRIEF):
    return start(fleet.operator, Wish(model=MODEL, record=record(fleet, version), plan=plan))


def context(fleet):
    return StepContext(
        operator=fleet.operator, store=fleet.store, tell=bool, tell_copy=lambda *_: None
    )


def state_of(fleet):
    return look_at(fleet.operator, MODEL).state


def wait_for(fleet, *phases, timeout_s=PATIENCE_S):
    def reached():
        state = state_of(fleet)
        return state if state.phase in phases else None

    return until(reached, f"the roll is {phases}: {look_at(fleet.operator, MODEL)}", timeout_s)


def test_a_roll_moves_all_traffic_and_takes_the_old_version_out(rolling):
    with Load(rolling) as load:
        until(lambda: len(load.versions) > 50, "requests are answered")
        begin(rolling)
        state = wait_for(rolling, Phase.COMPLETED)
        count = len(load.versions)
        until(lambda: len(load.versions) > count + 50, "requests are answered")
    assert not load.errors
    assert set(load.versions[:50]) == {"1"}
    assert set(load.versions[count + 4 :]) == {"2"}
    assert [past.event for past in state.history] == [
        *("start", "ready", "held", "ready", "held", "ready", "held_last", "drained")
    ]
    deployment = look_at(rolling.operator, MODEL).deployment
    assert deployment.stable == "2"
    assert set(deployment.versions) == {"2"}
    assert set(deployment.kept) == {"1"}
    assert deployment.canary is None
    assert [one.roll for one in past_rolls(rolling.operator, MODEL)] == [state.roll]
    copy = orjson.loads((rolling.folder / "store" / MODEL / "deploy.json").read_bytes())
    assert copy["stable"] == "2"
