"""Versions that end the device process, or leave processes behind, among those that behave."""

import signal
from time import monotonic

import psutil
import pytest
from support.asking import asked_all_the_time
from support.fleet import draft_of, limits, runs, until

from batchfleet.ops import deployment

ECHO = "echo"
# The start of a process and the loads that come before an answer, on a machine with other work.
GAP_S = 6.0

MODEL = """\
import multiprocessing
import os
import subprocess
import threading
from pathlib import Path
from batchfleet import Model

FOLDER = Path({folder!r})

def wait():
    threading.Event().wait()

def note(name, value):
    with (FOLDER / name).open("a") as notes:
        notes.write(f"{{value}}\\n")

class Own(Model):
    def load(self, context):
        note("loads", f"{{context.model}}/{{context.version}}")
        {load}

    def predict(self, rows, context):
        for row in rows:
            if row["text"] == "leave":
                os._exit(3)
        return [{{"text": row["text"]}} for row in rows]
"""

LEAVES = "os._exit(3)"
HANGS = "wait()"
RAISES = "raise KeyError('no licence')"
BEHAVES = "pass"
FORKS = """helper = multiprocessing.get_context("fork").Process(target=wait, daemon=True)
        helper.start()
        note("children", helper.pid)"""
STARTS = """for apart in (False, True):
            child = subprocess.Popen(["sleep", "611"], start_new_session=apart)
            note("children", child.pid)"""


def publish(fleet, name, load=BEHAVES, **limits):
    """Publish a version, as `model/version`, and return its record."""
    model, _, version = name.partition("/")
    text = MODEL.format(folder=str(fleet.folder), load=load)
    return fleet.publish_code(text, model, version, limits=limits).record()


def deploy(fleet, name, load=BEHAVES, **limits):
    """Publish and deploy a version."""
    record = publish(fleet, name, load, **limits)
    fleet.deploy_record(name.partition("/")[0], record)
    return record


def noted(fleet, name):
    path = fleet.folder / name
    return path.read_text().split() if path.exists() else []


def refusals(worker):
    return [f"{event['model']}/{event['version']}" for event in worker.events("lane.refused")]


def lost(worker):
    return [event["pid"] for event in worker.events("device.lost")]


def wait_refused(fleet, name):
    model, _, version = name.partition("/")

    def refused():
        states = [lanes.get(version, {}).get("state") for lanes in fleet.lanes(model).values()]
        return states == ["refused"]

    until(refused, f"{name} is refused: {fleet.lanes(model)}")


def check_gone(pids):
    until(lambda: not any(runs(int(pid)) for pid in pids), f"{pids} are gone", 5)


@pytest.fixture
def worker(fleet):
    """A worker that serves echo, and a router."""
    draft = draft_of("echo", ECHO, limits=limits(max_batch_size=4))
    (found,) = fleet.bring_up(draft, allow_code="own")
    return found


def test_a_process_whose_forked_helper_lives_on_is_replaced(fleet, worker):
    deploy(fleet, "own/1", FORKS)
    fleet.wait_until_served("own")
    (helper,) = noted(fleet, "children")
    began = monotonic()
    assert fleet.ask("own", "leave").error["name"] == "poison"
    assert monotonic() - began < 2 * GAP_S
    assert fleet.ask(ECHO).status == "ok"
    check_gone([helper])


@pytest.mark.parametrize(
    "end", ["stop", *(pytest.param(end, marks=pytest.mark.slow) for end in ("lose", "undeploy"))]
)
def test_what_a_version_started_ends_with_its_process(fleet, worker, end):
    deploy(fleet, "own/1", STARTS)
    fleet.wait_until_served("own")
    children = noted(fleet, "children")
    assert len(children) == 2
    if end == "stop":
        began = monotonic()
        assert worker.stop() == 0
        assert monotonic() - began < GAP_S
    elif end == "lose":
        assert fleet.ask("own", "leave").error["name"] == "poison"
    else:
        deployment.undeploy(fleet.operator, "own", forced=True)
        worker.stop()
    check_gone(children)


@pytest.mark.slow
def test_what_a_version_started_ends_where_the_worker_is_killed(fleet, worker):
    deploy(fleet, "own/1", STARTS)
    fleet.wait_served("own")
    child, in_session_of_its_own = noted(fleet, "children")
    worker.process.kill()
    try:
        check_gone([child])
    finally:
        # Nobody is left who knows of it: the system's own means are for that, as the manual says.
        psutil.Process(int(in_session_of_its_own)).kill()


@pytest.mark.slow
@pytest.mark.parametrize(("load", "is_lost"), [(LEAVES, True), (RAISES, False)])
def test_a_version_that_cannot_be_loaded_is_tried_once(fleet, worker, load, is_lost):
    """Whatever is done to its model, until this very version is deployed again."""
    with asked_all_the_time(fleet, ECHO) as waits:
        bad = deploy(fleet, "oops/1", load)
        wait_refused(fleet, "oops/1")
        deploy(fleet, "oops/2")
        fleet.wait_served("oops", "2")
        for intake in ("hold", "refuse", "open"):
            deployment.set_intake(fleet.operator, "oops", intake)
        fleet.operator_sets("oops", backlog=77)
        deploy(fleet, "oops/3")
        fleet.wait_served("oops", "3")
        assert noted(fleet, "loads").count("oops/1") == 1
        assert refusals(worker) == ["oops/1"]
        assert len(lost(worker)) == is_lost
        assert max(waits) < 1
        fleet.deploy_record("oops", bad)
        until(lambda: refusals(worker) == ["oops/1"] * 2, "it was tried again")
        fleet.deploy_record("oops", publish(fleet, "oops/4"))
        fleet.wait_served("oops", "4")
    assert noted(fleet, "loads").count("oops/1") == 2
    # It had a process of its own each time.
    assert len(lost(worker)) == 2 * is_lost
    assert max(waits) < 1


@pytest.mark.slow
def test_a_version_whose_load_hangs_is_tried_once(fleet, worker):
    deploy(fleet, "oops/1", HANGS, load_ms=1000)
    wait_refused(fleet, "oops/1")
    deployment.set_intake(fleet.operator, "oops", "hold")
    deploy(fleet, "oops/2")
    fleet.wait_served("oops", "2")
    assert noted(fleet, "loads").count("oops/1") == 1
    assert refusals(worker) == ["oops/1"]
    (event,) = worker.events("lane.refused")
    assert "load took longer than its limit" in event["reason"]
    assert len(lost(worker)) == 1
    assert fleet.ask(ECHO).status == "ok"


@pytest.mark.slow
def test_many_versions_that_end_their_load_never_end_the_shared_process(fleet, worker):
    names = [f"oops{at}/1" for at in range(6)]
    shared = worker.device_pid()
    with asked_all_the_time(fleet, ECHO) as waits:
        for name in names:
            deploy(fleet, name, LEAVES)
        for name in names:
            wait_refused(fleet, name)
    assert sorted(refusals(worker)) == names
    assert sorted(noted(fleet, "loads")) == names
    assert len(lost(worker)) == len(names)
    assert shared not in lost(worker)
    assert max(waits) < 1
    # They need no process any more, and the one of those that behave is the only one left.
    until(lambda: len(psutil.Process(worker.pid).children()) == 1, "one process is left")


@pytest.mark.slow
def test_a_version_that_ends_the_process_again_and_again_gets_one_of_its_own(fleet, worker):
    deploy(fleet, "own/1")
    fleet.wait_until_served("own")
    assert fleet.ask("own", "leave").error["name"] == "poison"
    assert len(lost(worker)) == 2
    until(lambda: len(psutil.Process(worker.pid).children()) == 2, "it has a process of its own")
    fleet.wait_served("own")
    with asked_all_the_time(fleet, ECHO) as waits:
        assert fleet.ask("own", "leave").error["name"] == "poison"
        assert fleet.ask("own", "fine").status == "ok"
    assert len(lost(worker)) == 4
    assert max(waits) < 1


@pytest.mark.slow
def test_what_a_version_held_goes_with_it_into_a_process_of_its_own(fleet, worker):
    deploy(fleet, "own/1")
    fleet.wait_until_served("own")
    fleet.ask("own")
    texts = ["leave" if at in {3, 9} else f"text {at}" for at in range(20)]
    replies = fleet.replies("own", fleet.submit_all("own", [{"text": text} for text in texts]))
    poisoned = {at for at, reply in enumerate(replies) if reply.status != "ok"}
    assert poisoned == {3, 9}
    assert {replies[at].error["name"] for at in poisoned} == {"poison"}
    assert fleet.pending("own") == 0
    assert fleet.runs("own") == len(texts) + 1
    assert not worker.events("lane.refused")


@pytest.mark.slow
def test_a_worker_whose_device_process_is_told_to_end_by_others_serves_on(fleet, worker):
    """As a stop of a whole group does."""
    for number in (signal.SIGTERM, signal.SIGINT):
        psutil.Process(worker.device_pid()).send_signal(number)
    assert fleet.ask(ECHO).status == "ok"
    assert not lost(worker)
