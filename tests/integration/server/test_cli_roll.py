"""`batchfleet roll` without a fleet: what it refuses, and what it shows."""

import json
import secrets
from dataclasses import replace

import pytest
from click.testing import CliRunner
from support.fleet import draft_of

from batchfleet.broker import fleet, rolls
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.models.store import Store
from batchfleet.ops.cli import main
from batchfleet.ops.deployment import Operator, deploy
from batchfleet.ops.rolls.commands import Wish, start
from batchfleet.ops.rolls.plan import Plan


@pytest.fixture
def operator(redis_url, namespace):
    with BlockingExecutor(redis_url, "test") as executor:
        yield Operator(
            executor=executor, namespace=namespace, draw_nonce=lambda: f"me:{secrets.token_hex(8)}"
        )


@pytest.fixture
def run(redis_url, namespace, store_path, operator):
    """Run a command where version 1 of `m` is deployed, and version 2 is in the store."""
    store = Store(str(store_path))
    for version in ("1", "2"):
        manifest = store.publish(replace(draft_of("echo", "m"), version=version), {})
        if version == "1":
            deploy(operator, "m", manifest.record(), ["default"])

    def invoke(*words):
        environ = {
            "BATCHFLEET_REDIS_URL": redis_url,
            "BATCHFLEET_NAMESPACE": namespace,
            "BATCHFLEET_STORE": str(store_path),
        }
        return CliRunner().invoke(main, ["roll", *words], env=environ)

    return invoke


@pytest.fixture
def jobs_worker(operator):
    """A jobs worker that has announced itself, and takes no step."""
    now_ms = operator.executor.run(fleet.server_time())
    operator.executor.run_all(rolls.announce_jobs(operator.namespace, "j-1", now_ms))


def refusal(told):
    assert told.exit_code == 1, told.output
    return told.stderr


def test_a_roll_is_refused_in_a_sentence(run):
    assert "m/1 is the stable version already" in refusal(run("start", "m/1"))
    assert "no jobs worker is alive" in refusal(run("start", "m/2"))
    assert "m has no roll" in refusal(run("status", "m"))
    assert "m has no roll" in refusal(run("pause", "m"))
    assert "rising percentages" in refusal(run("start", "m/2", "--steps", "50,10"))
    assert "no model 'other' is deployed" in refusal(run("pause", "other"))


def test_history_is_empty_at_first(run):
    assert "0 rolls have ended" in run("history", "m").stdout
    assert json.loads(run("history", "m", "--json").stdout) == {"rolls": []}


def test_a_roll_without_workers_waits_and_can_be_taken_back(run, operator, jobs_worker):
    record = replace(draft_of("echo", "m"), version="2").record()
    start(operator, Wish(model="m", record=record, plan=Plan()))
    shown = run("status", "m")
    assert "m: 1 → 2: loading" in shown.stdout
    assert "started by me" in shown.stdout
    found = json.loads(run("status", "m", "--json").stdout)
    assert (found["phase"], found["from"], found["to"]) == ("loading", "1", "2")
    assert "a roll of m from 1 to 2, started by me, is loading" in refusal(run("start", "m/2"))
    assert "is loading; it cannot be promoted" in refusal(run("promote", "m"))
    assert json.loads(run("pause", "m", "--json").stdout)["phase"] == "paused"
    assert "is paused; it cannot be paused" in refusal(run("pause", "m"))
    assert "rolling back" in run("rollback", "m").stdout
    assert "is rolling back; it cannot be resumed" in refusal(run("resume", "m"))
