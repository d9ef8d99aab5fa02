"""A user's own class, served by a fleet of real processes."""

import hashlib

import pytest
from support.fleet import running_fleet, until

from batchfleet.models.drafting import Wishes, draft_of_file

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
    draft, sources = draft_of_file(path, Wishes(model=model, version=version))
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
