"""A user's own class by the commands that the README names, and packages that differ."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from batchfleet import Client
from batchfleet.models.drafting import PublishOptions, draft_of_file
from benchmarks.processes import Conversation
from tests.support.fleet import check_all_ok, running_fleet
from tests.support.server import running_server
from tests.support.wheels import lock_file, make_wheel

from .promise import equals

PATIENCE_S = 240.0
NAMESPACE = "own"
SHOUT = """\
import batchfleet


class Shout(batchfleet.Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper()} for row in rows]
"""
TEST = """\
from batchfleet.testing import serve
from model import Shout


def test_shouting():
    with serve(Shout) as client:
        assert client.infer("Shout", ["hello", "world"]).outputs["text"] == ["HELLO", "WORLD"]
"""
TASTE = """\
import flavour
from batchfleet import Model


class Taste(Model):
    def predict(self, rows, context):
        return [{"taste": flavour.NAME} for row in rows]
"""
WAYS = ("try", "testing.serve", "dev", "publish", "deploy", "infer")


def run(folder, *command):
    """What a command printed; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command[1:3]} failed: {done.stdout}{done.stderr}")
    return done.stdout


def own_class_by_commands():
    """Through each way in turn; a way that fails is missing in the figure."""
    lines = sum(bool(line.strip()) for line in SHOUT.splitlines())
    with tempfile.TemporaryDirectory(prefix="batchfleet-own-") as name:
        folder = Path(name)
        (folder / "model.py").write_text(SHOUT)
        (folder / "test_model.py").write_text(TEST)
        worked = [*_alone(folder), *_in_a_fleet(folder)]
    return [
        equals(f"own class of {lines} lines answers by", ", ".join(worked), ", ".join(WAYS)),
    ]


def _alone(folder):
    tried = run(folder, "batchfleet.ops", "models", "try", "model.py", "--text", "hi", "--json")
    if json.loads(tried)["outputs"][0]["data"] == ["HI"]:
        yield "try"
    if "1 passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider"):
        yield "testing.serve"
    source = str(folder / "model.py")
    with Conversation("batchfleet.ops", "dev", source, "--name", "shout", "--json") as program:
        facts = program.start(PATIENCE_S)
        with Client(facts["redis_url"], namespace=facts["namespace"]) as client:
            if client.infer("shout", "hi").outputs["text"] == ["HI"]:
                yield "dev"


def _in_a_fleet(folder):
    store = ("--store", str(folder / "store"))
    for version in ("1", "2"):
        named = ("--name", "shout", "--version", version)
        told = run(folder, "batchfleet.ops", "models", "publish", "model.py", *named, *store)
    if told.startswith("shout/2 is in the store"):
        yield "publish"
    with Conversation("batchfleet.ops", "up", "--json", *store) as program:
        url = ("--redis-url", program.start(PATIENCE_S)["redis_url"])
        told = run(
            folder, "batchfleet.ops", "deploy", "shout/1", *url, *store, "--wait", str(PATIENCE_S)
        )
        if told.startswith("shout/1 is in service"):
            yield "deploy"
        answer = json.loads(run(folder, "batchfleet.ops", "infer", "shout", "hi", *url, "--json"))
        if (answer["outputs"][0]["data"], answer["version"]) == (["HI"], "1"):
            yield "infer"


def two_environments():
    """Two models on one worker whose lock files name different versions of one package."""
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-own-") as name,
        running_server({}) as server,
        running_fleet(
            server, NAMESPACE, Path(name), allow_code="own", cache=str(Path(name) / "cache")
        ) as fleet,
    ):
        for version, taste in (("1", "sweet"), ("2", "sour")):
            _publish_tasting(fleet, version, taste)
        consumer = fleet.consumer()
        for version in ("1", "2"):
            fleet.wait_served(f"taste{version}", version)
        fleet.router()
        for version in ("1", "2"):
            fleet.wait_routed(f"taste{version}")
        replies = [fleet.ask(f"taste{version}") for version in ("1", "2")]
        check_all_ok(replies)
        tastes = " and ".join(reply.outputs[0]["data"][0] for reply in replies)
        processes = len({event["pid"] for event in consumer.events("device.started")})
    return [
        equals("one worker, two versions of one package: the answers", tastes, "sweet and sour"),
        equals("device processes of that worker", processes, 2),
    ]


def _publish_tasting(fleet, version, taste):
    source = fleet.folder / "model.py"
    source.write_text(TASTE)
    wheel = make_wheel(fleet.folder / "wheels", "flavour", version, f"NAME = {taste!r}\n")
    lock = lock_file(fleet.folder / "requirements.lock", wheel)
    wishes = PublishOptions(model=f"taste{version}", version=version, requirements=lock)
    manifest = fleet.store.publish(*draft_of_file(source, wishes))
    places = ("--store", fleet.store.root, "--cache", str(fleet.folder / "cache"))
    named = f"{manifest.model}/{version}"
    run(fleet.folder, "batchfleet.ops", "models", "environment", "build", named, *places)
    fleet.deploy_record(manifest.model, manifest.record())
