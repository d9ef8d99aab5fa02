"""Rolls by real programs: routers, workers, jobs workers, under steady load."""

import threading
from dataclasses import replace

import orjson
import pytest
from support.fleet import until

from batchfleet.ops.rolls.commands import RollError, Wish, command, past_rolls, start
from batchfleet.ops.rolls.observing import look_at
from batchfleet.ops.rolls.plan import WORKER_BY_WORKER, Plan
from batchfleet.ops.rolls.state import Event, Phase, TransitionError
from batchfleet.ops.rolls.steps import StepContext
from batchfleet.producer.client import Client
from batchfleet.wire.errors import RequestError, SettingsError

SHOUT = """\
from batchfleet import Model

class Shout(Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper()} for row in rows]
"""
FAILING = SHOUT.replace(
    "        return", '        raise RuntimeError("a word that it does not know")\n        return'
)
UNLOADABLE = SHOUT.replace(
    "    def predict",
    '    def load(self, context):\n        raise OSError("no such lens")\n\n    def predict',
)
OTHER = SHOUT.replace(
    "    def predict",
    '    signature = {"inputs": [{"name": "text", "datatype": "BYTES"}]}\n\n    def predict',
)

pytestmark = pytest.mark.slow

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
    """A fleet that serves version 1 by two workers, and has others in its store."""
    fleet.settings["allow_code"] = "own"
    fleet.deploy_code(SHOUT, MODEL)
    fleet.bring_up(workers=2)
    fleet.wait_until_served(MODEL, workers=2)
    fleet.publish_code(SHOUT, MODEL, "2")
    fleet.publish_code(FAILING, MODEL, "failing")
    fleet.publish_code(UNLOADABLE, MODEL, "unloadable")
    fleet.publish_code(OTHER, MODEL, "other")
    fleet.start("jobs").wait_until_ready()
    return fleet


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


def test_a_version_that_fails_goes_back_by_itself_and_says_why(rolling):
    with Load(rolling) as load:
        begin(rolling, "failing")
        state = wait_for(rolling, Phase.ROLLED_BACK)
        count = len(load.versions)
        until(lambda: len(load.versions) > count + 50, "requests are answered")
    assert state.reason.startswith("errors: ")
    assert {error.kind.label for error in load.errors} == {"model_error"}
    assert set(load.versions) == {"1"}
    (past,) = past_rolls(rolling.operator, MODEL)
    assert past.reason == state.reason
    deployment = look_at(rolling.operator, MODEL).deployment
    assert (deployment.stable, set(deployment.versions), set(deployment.kept)) == (
        "1",
        {"1"},
        set(),
    )


def test_a_version_that_no_worker_can_load_gets_no_traffic(rolling):
    with Load(rolling) as load:
        begin(rolling, "unloadable")
        state = wait_for(rolling, Phase.REFUSED)
    assert not load.errors
    assert set(load.versions) == {"1"}
    assert "2 of 2 workers refuse unloadable" in state.reason
    assert "no such lens" in state.reason
    assert not any(past.phase is Phase.SHIFTING for past in state.history)


def test_an_operator_pauses_resumes_promotes_and_rolls_back(rolling):
    slow = replace(BRIEF, hold_s=600.0)
    begin(rolling, plan=slow)
    wait_for(rolling, Phase.SHIFTING)
    assert command(context(rolling), MODEL, Event.PAUSE).phase is Phase.PAUSED
    with pytest.raises(TransitionError, match="is paused; it cannot be paused"):
        command(context(rolling), MODEL, Event.PAUSE)
    command(context(rolling), MODEL, Event.RESUME)
    state = wait_for(rolling, Phase.SHIFTING)
    assert state.weight == 10.0
    with pytest.raises(
        RollError, match=r"a roll of rolled from 1 to 2, started by .*, is shifting"
    ):
        begin(rolling)
    command(context(rolling), MODEL, Event.ROLL_BACK)
    wait_for(rolling, Phase.ROLLED_BACK)
    begin(rolling, plan=slow)
    wait_for(rolling, Phase.SHIFTING)
    command(context(rolling), MODEL, Event.PROMOTE)
    wait_for(rolling, Phase.COMPLETED)
    assert look_at(rolling.operator, MODEL).deployment.stable == "2"
    assert [one.phase for one in past_rolls(rolling.operator, MODEL)] == [
        *(Phase.COMPLETED, Phase.ROLLED_BACK)
    ]


def test_another_jobs_worker_goes_on_where_one_was_killed(rolling):
    first = next(program for program in rolling.programs if program.kind == "jobs")
    rolling.start("jobs").wait_until_ready()
    with Load(rolling) as load:
        begin(rolling)
        wait_for(rolling, Phase.SHIFTING)
        first.kill()
        wait_for(rolling, Phase.COMPLETED)
    assert not load.errors


def test_a_roll_needs_a_jobs_worker_another_version_and_the_same_signature(rolling):
    with pytest.raises(RollError, match="rolled/1 is the stable version already"):
        begin(rolling, "1")
    with pytest.raises(RollError, match="the signature of rolled/other is another"):
        begin(rolling, "other")
    for program in rolling.programs:
        if program.kind == "jobs":
            program.stop()
    with pytest.raises(RollError, match="no jobs worker is alive"):
        begin(rolling)
    assert look_at(rolling.operator, MODEL) is None


def test_a_state_that_a_foreign_hand_wrote_is_not_followed(rolling):
    begin(rolling, plan=replace(BRIEF, hold_s=600.0))
    wait_for(rolling, Phase.SHIFTING)
    keys = rolling.keys(MODEL)
    raw = orjson.loads(rolling.server.hget(keys.deploy, "roll"))
    rolling.server.hset(keys.deploy, "roll", orjson.dumps({**raw, "phase": "flying"}))
    jobs = next(program for program in rolling.programs if program.kind == "jobs")
    until(lambda: jobs.events("roll.unreadable"), "the jobs worker reports it")
    with pytest.raises(SettingsError, match="the state of its roll is not followed"):
        command(context(rolling), MODEL, Event.PROMOTE)
    rolling.server.hset(keys.deploy, "roll", orjson.dumps(raw))
    command(context(rolling), MODEL, Event.ROLL_BACK)
    wait_for(rolling, Phase.ROLLED_BACK)
    assert len(jobs.events("roll.unreadable")) == 1


def test_worker_by_worker_no_worker_has_both(rolling):
    with Load(rolling) as load:
        begin(rolling, plan=replace(BRIEF, strategy=WORKER_BY_WORKER))
        wait_for(rolling, Phase.SHIFTING)
        lanes = rolling.lanes(MODEL).values()
        assert sorted(tuple(said) for said in lanes) == [("1",), ("2",)]
        wait_for(rolling, Phase.COMPLETED)
        rolling.wait_served(MODEL, "2", workers=2)
        count = len(load.versions)
        until(lambda: len(load.versions) > count + 50, "requests are answered")
    assert not load.errors
    assert set(load.versions[count + 4 :]) == {"2"}


def test_worker_by_worker_it_goes_back_as_well(rolling):
    with Load(rolling) as load:
        begin(rolling, plan=replace(BRIEF, strategy=WORKER_BY_WORKER, hold_s=600.0))
        wait_for(rolling, Phase.SHIFTING)
        command(context(rolling), MODEL, Event.ROLL_BACK)
        wait_for(rolling, Phase.ROLLED_BACK)
        rolling.wait_served(MODEL, "1", workers=2)
    assert not load.errors
