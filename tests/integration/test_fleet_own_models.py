"""A user's own class, served by a fleet of real processes."""

import hashlib
import os
from dataclasses import replace

import pytest
from support.fleet import running_fleet, until

from batchfleet.models.drafting import PublishOptions, draft_of_file

SHOUT = """\
from batchfleet import Model

class Shout(Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper()} for row in rows]
"""


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    with running_fleet(redis_server, namespace, tmp_path) as fleet:
        yield fleet


def publish(fleet, model, text=SHOUT, version="1"):
    """Publish a file's class and put it in service."""
    path = fleet.folder / "model.py"
    path.write_text(text)
    draft, sources = draft_of_file(path, PublishOptions(model=model, version=version))
    manifest = fleet.store.publish(draft, sources)
    fleet.deploy_record(model, manifest.record())
    return manifest


def refusal(fleet, model, version="1"):
    """What a worker says of a version that it does not take."""

    def said():
        states = [lanes.get(version, {}) for lanes in fleet.lanes(model).values()]
        return next((s["reason"] for s in states if s.get("state") == "refused"), None)

    return until(said, f"a worker refuses {model}/{version}: {fleet.lanes(model)}")


def test_own_code_is_served_where_it_is_allowed(fleet):
    fleet.router()
    fleet.consumer(allow_code="own")
    publish(fleet, "shout")
    fleet.wait_served("shout")
    fleet.wait_routed("shout")
    reply = fleet.ask("shout", ["a", "b"])
    assert reply.outputs[0]["data"] == ["A", "B"]


@pytest.mark.slow
def test_code_of_the_store_is_refused_unless_the_operator_allows_it(fleet):
    consumer = fleet.consumer()
    publish(fleet, "shout")
    sha256 = hashlib.sha256(SHOUT.encode()).hexdigest()
    assert f"--allow-code digest:{sha256}" in refusal(fleet, "shout")
    consumer.stop()
    fleet.consumer(allow_code=f"digest:{sha256}")
    fleet.wait_served("shout")


def test_what_a_class_raises_is_told_with_its_own_trace_in_the_log_alone(fleet):
    fleet.router()
    consumer = fleet.consumer(allow_code="own")
    publish(fleet, "broken", SHOUT.replace("upper()", "nonsense()"))
    fleet.wait_served("broken")
    fleet.wait_routed("broken")
    error = fleet.ask("broken").error
    assert error["name"] == "model_error"
    assert "model.py" not in str(error)
    (told,) = consumer.events("model_raised")
    first = told["exception"].splitlines()[1]
    assert "model.py" in first
    assert "line 5, in predict" in first

    publish(fleet, "unready", "1 / 0\n" + SHOUT)
    assert "ZeroDivisionError" in refusal(fleet, "unready")
    (told,) = consumer.events("load_failed")
    assert "model.py" in told["exception"].splitlines()[1]


DYING = """\
import os
from pathlib import Path
from batchfleet import Model

class Dying(Model):
    def load(self, context):
        loads = Path({folder!r}, "loads")
        number = len(loads.read_bytes())
        loads.write_bytes(b"x" * (number + 1))
        if number == 1:
            Path({folder!r}, "gate").read_bytes()

    def predict(self, rows, context):
        if any(row["text"] == "die" for row in rows):
            os._exit(3)
        return [{{"text": row["text"]}} for row in rows]
"""


@pytest.mark.slow
def test_requests_outwait_a_crash_after_which_their_version_is_loaded_anew(fleet):
    os.mkfifo(fleet.folder / "gate")
    (fleet.folder / "loads").touch()
    fleet.router(no_worker_ms=400)
    consumer = fleet.consumer(allow_code="own")
    manifest = publish(fleet, "dying", DYING.format(folder=str(fleet.folder)))
    fleet.wait_served("dying")
    until(lambda: fleet.ask("dying").status == "ok", "the router knows that it is served")

    culprit = fleet.submit("dying", "die")
    until(lambda: consumer.events("device.lost"), "the device process has ended")
    until(
        lambda: [lanes["1"]["state"] for lanes in fleet.lanes("dying").values()] == ["loading"],
        "it is being loaded anew",
    )
    neighbour = fleet.submit("dying", "fine")
    # Unserved since now, so that whoever else nobody serves is given up before it.
    fleet.deploy_record("nobodys", replace(manifest.record(), device="cuda"))
    fleet.wait_routed("nobodys")
    assert fleet.ask("nobodys").error["name"] == "no_worker"
    assert not fleet.items("dying", culprit)
    assert not fleet.items("dying", neighbour)

    (fleet.folder / "gate").write_bytes(b"")
    assert fleet.reply("dying", neighbour).outputs[0]["data"] == ["fine"]
    assert fleet.reply("dying", culprit).error["name"] == "poison"


def test_refused_outputs_and_models_that_exit_are_told_in_the_log(fleet):
    fleet.router()
    consumer = fleet.consumer(allow_code="own")
    text = SHOUT.replace(
        'return [{"text": row["text"].upper()} for row in rows]',
        'return [rows, exit(3)] if rows[0]["text"] == "exit" else []',
    )
    publish(fleet, "wrong", text)
    fleet.wait_served("wrong")
    fleet.wait_routed("wrong")
    errors = [fleet.ask("wrong", "a secret").error for _ in range(2)]
    assert [error["name"] for error in errors] == ["bad_output"] * 2
    (told,) = consumer.events("bad_output")
    assert (told["model"], told["version"]) == ("wrong", "1")
    assert "0 outputs for 1 rows" in told["reason"]
    error = fleet.ask("wrong", "exit").error
    assert (error["name"], "its code called exit" in error["message"]) == ("poison", True)
    left = consumer.events("model_left")
    assert {(one["model"], one["stage"]) for one in left} == {("wrong", "predict")}
    assert all("model.py" in one["exception"].splitlines()[1] for one in left)
