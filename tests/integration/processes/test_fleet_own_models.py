"""A user's own class, served by a fleet of real processes."""

import hashlib
import os
from dataclasses import replace

import pytest
from support.fleet import until

SHOUT = """\
from batchfleet import Model

class Shout(Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper()} for row in rows]
"""


def refusal(fleet, model, version="1"):
    """What a worker says of a version that it does not take."""

    def said():
        states = [lanes.get(version, {}) for lanes in fleet.lanes(model).values()]
        return next((s["reason"] for s in states if s.get("state") == "refused"), None)

    return until(said, f"a worker refuses {model}/{version}: {fleet.lanes(model)}")


def test_own_code_is_served_where_it_is_allowed(fleet):
    fleet.router()
    fleet.consumer(allow_code="own")
    fleet.deploy_code(SHOUT, "shout")
    fleet.wait_until_served("shout")
    reply = fleet.ask("shout", ["a", "b"])
    assert reply.outputs[0]["data"] == ["A", "B"]


@pytest.mark.slow
def test_code_of_the_store_is_refused_unless_the_operator_allows_it(fleet):
    consumer = fleet.consumer()
    fleet.deploy_code(SHOUT, "shout")
    sha256 = hashlib.sha256(SHOUT.encode()).hexdigest()
    assert f"--allow-code digest:{sha256}" in refusal(fleet, "shout")
    consumer.stop()
    fleet.consumer(allow_code=f"digest:{sha256}")
    fleet.wait_served("shout")


def test_what_a_class_raises_is_told_with_its_own_trace_in_the_log_alone(fleet):
    fleet.router()
    consumer = fleet.consumer(allow_code="own")
    fleet.deploy_code(SHOUT.replace("upper()", "nonsense()"), "broken")
    fleet.wait_until_served("broken")
    error = fleet.ask("broken").error
    assert error["name"] == "model_error"
    assert "model.py" not in str(error)
    (told,) = consumer.events("model_raised")
    first = told["exception"].splitlines()[1]
    assert "model.py" in first
    assert "line 5, in predict" in first

    fleet.deploy_code("1 / 0\n" + SHOUT, "unready")
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
def test_requests_outwait_a_crash_after_which_their_version_is_loaded_again(fleet):
    os.mkfifo(fleet.folder / "gate")
    (fleet.folder / "loads").touch()
    fleet.router(no_worker_ms=400)
    consumer = fleet.consumer(allow_code="own")
    manifest = fleet.deploy_code(DYING.format(folder=str(fleet.folder)), "dying")
    fleet.wait_served("dying")
    until(lambda: fleet.ask("dying").status == "ok", "the router knows that it is served")

    culprit = fleet.submit("dying", "die")
    until(lambda: consumer.events("device.lost"), "the device process has ended")
    until(
        lambda: [lanes["1"]["state"] for lanes in fleet.lanes("dying").values()] == ["loading"],
        "it is being loaded again",
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


@pytest.mark.slow
def test_refused_outputs_and_models_that_exit_are_told_in_the_log(fleet):
    fleet.router()
    consumer = fleet.consumer(allow_code="own")
    text = SHOUT.replace(
        'return [{"text": row["text"].upper()} for row in rows]',
        'return [rows, exit(3)] if rows[0]["text"] == "exit" else []',
    )
    fleet.deploy_code(text, "wrong")
    fleet.wait_until_served("wrong")
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
