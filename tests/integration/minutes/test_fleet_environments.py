"""Versions that need different packages, on one worker."""

import subprocess
import sys

import psutil
import pytest
from support.commands import batchfleet
from support.fleet import check_all_ok, running_fleet, until
from support.wheels import lock_file, make_wheel

from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.ops import deployment

PATIENCE_S = 120
MODEL = """\
import flavour
from batchfleet import Model

class Taste(Model):
    def predict(self, rows, context):
        return [{"taste": flavour.NAME} for row in rows]
"""


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    cache = str(tmp_path / "cache")
    settings = {
        "allow_code": "own",
        "allow_environments": f"built,{tmp_path}/bare,/no/such/environment",
        "cache": cache,
    }
    with running_fleet(redis_server, namespace, tmp_path, **settings) as fleet:
        yield fleet


def publish(fleet, version, taste, environment=""):
    """Publish and deploy a version that needs package `flavour` to taste so."""
    requirements = None
    if not environment:
        wheel = make_wheel(fleet.folder / "wheels", "flavour", version, f"NAME = {taste!r}\n")
        requirements = lock_file(fleet.folder / "requirements.lock", wheel)
    return fleet.deploy_code(
        MODEL, f"taste{version}", version, requirements=requirements, environment=environment
    )


def run(fleet, *arguments):
    folders = ("--store", fleet.store.root, "--cache", fleet.folder / "cache")
    return batchfleet("models", *arguments, *folders, timeout_s=PATIENCE_S).stdout


def refusal(fleet, model, version):
    def said():
        states = [lanes.get(version, {}) for lanes in fleet.lanes(model).values()]
        return next((s["reason"] for s in states if s.get("state") == "refused"), None)

    return until(said, f"a worker refuses {model}/{version}: {fleet.lanes(model)}")


def test_one_worker_serves_versions_whose_packages_differ(fleet):
    manifests = [publish(fleet, "1", "sweet"), publish(fleet, "2", "sour")]
    for manifest in manifests:
        run(fleet, "environment", "build", f"{manifest.model}/{manifest.version}")
    consumer = fleet.consumer()
    for manifest in manifests:
        fleet.wait_served(manifest.model, manifest.version)
    fleet.router()  # not before: it would have found for too long that nobody serves them
    for manifest in manifests:
        fleet.wait_routed(manifest.model)
    for manifest in manifests:  # a router learns within its refresh that a version is served now
        until(lambda model=manifest.model: fleet.ask(model).status == "ok", "it is routed")
    replies = [fleet.ask(manifest.model) for manifest in manifests]
    check_all_ok(replies)
    assert [reply.outputs[0]["data"] for reply in replies] == [["sweet"], ["sour"]]
    assert len({reply.receipt["batch"] for reply in replies}) == 2
    assert len({event["pid"] for event in consumer.events("device.started")}) == 2
    assert manifests[0].lineage != manifests[1].lineage

    tried = run(fleet, "try", "taste2/2", "--text", "x")
    assert '"sour"' in tried


def test_a_worker_without_the_environment_says_so_until_it_is_built(fleet):
    fleet.consumer()
    manifest = publish(fleet, "1", "sweet")
    assert "environment build" in refusal(fleet, "taste1", "1")
    run(fleet, "environment", "build", "taste1/1")
    fleet.deploy_record("taste1", manifest.record())
    fleet.wait_served("taste1", "1")

    publish(fleet, "2", "", environment="/no/such/environment")
    assert "/no/such/environment, which is not on this machine" in refusal(fleet, "taste2", "2")


def test_an_environment_sees_nothing_of_the_workers_own_packages(fleet):
    fleet.consumer()
    environment = fleet.folder / "bare"
    made = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(made, check=True, timeout=PATIENCE_S)
    text = MODEL.replace("flavour", "click")
    fleet.deploy_code(text, "leaning", environment=str(environment))
    assert "it needs 'click', which this Python does not have" in refusal(fleet, "leaning", "1")

    (environment / "lib").rename(environment / "lib-away")
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").write_text("#!/bin/sh\necho no interpreter >&2\nexit 3\n")
    (environment / "bin" / "python").chmod(0o755)
    fleet.consumer()
    reasons = until(
        lambda: [
            lanes["1"]["reason"]
            for lanes in fleet.lanes("leaning").values()
            if "no interpreter" in lanes.get("1", {}).get("reason", "")
        ],
        "the second worker cannot start a process there",
    )
    assert "cannot run a device process" in reasons[0]


def test_a_process_that_dies_takes_no_other_environment_along(fleet):
    manifest = publish(fleet, "1", "sweet")
    run(fleet, "environment", "build", "taste1/1")
    text = MODEL.replace("import flavour", "import os").replace("flavour.NAME", "os._exit(3)")
    (fleet.folder / "model.py").write_text(text)
    deadly = fleet.store.publish(
        *draft_of_file(fleet.folder / "model.py", PublishOptions(model="deadly", version="1"))
    )
    consumer = fleet.consumer()
    fleet.deploy_record("deadly", deadly.record())
    fleet.wait_served("deadly")
    fleet.wait_served("taste1")
    fleet.router()
    fleet.wait_routed("deadly")
    fleet.wait_routed("taste1")
    assert fleet.ask("deadly").error["name"] == "poison"
    assert fleet.ask("taste1").outputs[0]["data"] == ["sweet"]
    lost = {event["pid"] for event in consumer.events("device.lost")}
    ready = [event for event in consumer.events("lane.ready") if event["model"] == "taste1"]
    assert lost
    assert len(ready) == 1
    fleet.deploy_record("taste1", manifest.record())


def test_the_process_of_an_environment_ends_with_its_last_version(fleet):
    publish(fleet, "1", "sweet")
    run(fleet, "environment", "build", "taste1/1")
    consumer = fleet.consumer()
    fleet.wait_served("taste1")
    process = psutil.Process(consumer.device_pid())
    deployment.undeploy(fleet.operator, "taste1", forced=True)
    assert process.wait(PATIENCE_S) is None or not process.is_running()
    assert not consumer.events("device.lost")


def test_deploying_what_every_worker_refuses_says_so_and_how_to_go_on(fleet):
    publish(fleet, "1", "sweet")
    consumer = fleet.consumer()
    assert "was not built" in refusal(fleet, "taste1", "1")
    place = ("--store", fleet.store.root, "--namespace", fleet.namespace, "--redis-url", fleet.url)
    deploy = ("deploy", "taste1/1", *place)
    done = batchfleet(*deploy, exit_code=1, timeout_s=PATIENCE_S)
    assert "all 1 workers refuse it" in done.stderr
    assert "environment build taste1/1" in done.stderr
    run(fleet, "environment", "build", "taste1/1")
    batchfleet(*deploy, "--wait", PATIENCE_S, timeout_s=2 * PATIENCE_S)
    assert consumer.events("lane.ready")
