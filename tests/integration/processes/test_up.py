"""`batchfleet up`: a whole fleet as a process tree of its own."""

import json
import subprocess

import psutil
import pytest
from support.commands import PROGRAM, batchfleet
from support.fleet import draft_of, runs, until

from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.models.importing import import_builtin
from batchfleet.models.store import Store
from batchfleet.service.addresses import masked_url
from batchfleet.service.lifecycle import spawn

PATIENCE_S = 60
STOP_S = 10


class Up:
    """`batchfleet up --json` as a process of its own."""

    def __init__(self, *arguments):
        self.process = spawn(
            [*PROGRAM, "up", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.facts = json.loads(self.process.stdout.readline())
        pids = self.facts["pids"]
        programs = [pids["server"], pids["router"], *pids["consumers"], pids["jobs"]]
        roots = [psutil.Process(pid) for pid in programs if pid is not None]
        self.family = [*roots, *(child for root in roots for child in root.children())]

    def run(self, *arguments, exit_code=0):
        """Run a command against the fleet as another process would."""
        url = ("--redis-url", self.facts["redis_url"])
        return batchfleet(*arguments, *url, exit_code=exit_code).stdout

    def wait_until_gone(self):
        """The processes of the fleet that are still there after a while."""
        return psutil.wait_procs(self.family, timeout=PATIENCE_S)[1]

    def close(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


@pytest.fixture
def up(store_path, monkeypatch):
    """Start a fleet; it is gone after the test."""
    monkeypatch.setenv("BATCHFLEET_STORE", str(store_path))
    started = []

    def start(*arguments):
        started.append(Up(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def echo_fleet(up, store_path):
    """A fleet on a server of its own that serves echo and noop."""
    store = Store(str(store_path))
    store.publish(draft_of("echo", "echo"), {})
    import_builtin(store, "noop")
    return up()


@pytest.mark.slow
def test_up_serves_what_is_in_the_store_until_it_is_asked_to_stop(echo_fleet):
    assert echo_fleet.facts["models"] == ["echo", "noop"]
    assert (echo_fleet.facts["namespace"], len(echo_fleet.facts["pids"]["consumers"])) == ("bf", 1)
    reply = json.loads(echo_fleet.run("infer", "echo", "hello", "world", "--json"))
    assert (reply["status"], reply["usage"]["rows"]) == ("ok", 2)
    assert reply["receipt"]["attempt"] == 1
    assert "digest  1 texts" in echo_fleet.run("infer", "echo", "hello")
    request_id = echo_fleet.run("submit", "echo", "hello").strip()
    for _ in range(2):  # the reply stays
        assert (
            json.loads(echo_fleet.run("result", "echo", request_id, "--json"))["id"] == request_id
        )
    shown = json.loads(echo_fleet.run("requests", "show", "echo", request_id, "--json"))
    assert (shown["state"], shown["reply"]["status"]) == ("ok", "ok")
    failed = echo_fleet.run("infer", "echo", "!raise", "--json", exit_code=1)
    assert json.loads(failed)["error"]["name"] == "model_error"
    status = json.loads(echo_fleet.run("status", "--json"))
    assert [model["versions"][0]["ready_workers"] for model in status["models"]] == [1, 1]
    echo_fleet.process.terminate()
    assert echo_fleet.process.wait(PATIENCE_S) == 0
    assert echo_fleet.wait_until_gone() == []


def test_up_starts_a_program_that_died_again(echo_fleet):
    psutil.Process(echo_fleet.facts["pids"]["router"]).kill()
    assert json.loads(echo_fleet.run("infer", "echo", "hello", "--json"))["status"] == "ok"


STARTS = """\
import subprocess
from pathlib import Path
from batchfleet import Model

class Starts(Model):
    def load(self, context):
        for apart in (False, True):
            child = subprocess.Popen(["sleep", "611"], start_new_session=apart, env={{}})
            with Path({notes!r}).open("a") as notes:
                notes.write(f"{{child.pid}}\\n")

    def predict(self, rows, context):
        return rows
"""


@pytest.fixture
def starting_fleet(up, store_path, tmp_path):
    """A fleet whose model starts processes, and their numbers."""
    path, notes = tmp_path / "starts.py", tmp_path / "children"
    path.write_text(STARTS.format(notes=str(notes)))
    Store(str(store_path)).publish(
        *draft_of_file(path, PublishOptions(model="starts", version="1"))
    )
    started = up()
    return started, [int(line) for line in notes.read_text().split()]


def gone(pids):
    return until(lambda: not any(map(runs, pids)), f"{pids} are gone", 5)


def test_up_stops_at_once_whatever_its_models_have_started(starting_fleet):
    fleet, children = starting_fleet
    fleet.process.terminate()
    # Whoever reads what it says reads to the end.
    fleet.process.communicate(timeout=STOP_S)
    assert fleet.process.returncode == 0
    assert gone(children)


@pytest.mark.slow
def test_what_the_models_of_a_killed_worker_have_started_ends_under_up(starting_fleet):
    fleet, children = starting_fleet
    psutil.Process(fleet.facts["pids"]["consumers"][0]).kill()
    assert gone(children)
    assert fleet.process.poll() is None


def test_up_that_is_killed_takes_everything_with_it(echo_fleet):
    echo_fleet.process.kill()
    assert echo_fleet.wait_until_gone() == []


def test_up_whose_server_died_ends_with_an_error(echo_fleet):
    psutil.Process(echo_fleet.facts["pids"]["server"]).kill()
    assert echo_fleet.process.wait(PATIENCE_S) == 1
    assert echo_fleet.wait_until_gone() == []


@pytest.mark.slow
def test_up_on_a_server_of_ones_own_starts_none(up, redis_server, namespace, monkeypatch):
    monkeypatch.setenv("BATCHFLEET_REDIS_URL", redis_server.socket_url)
    monkeypatch.setenv("BATCHFLEET_NAMESPACE", namespace)
    started = up("--workers", "2")
    assert started.facts["redis_url"] == masked_url(redis_server.socket_url)
    assert started.facts["models"] == []
    assert started.facts["pids"]["server"] is None
    assert len(started.facts["pids"]["consumers"]) == 2
    started.process.terminate()
    assert started.process.wait(PATIENCE_S) == 0
    assert started.wait_until_gone() == []
