"""What a model prints, asks, starts and does to its folder stays its own: a whole fleet as `up`."""

import json
import subprocess

import pytest
from support.commands import PROGRAM, batchfleet

from batchfleet.service.lifecycle import spawn

PATIENCE_S = 60
CHATTY = """\
import multiprocessing, os, signal, sys
from batchfleet import Model, Row

print('{"ready": "not at all"}', flush=True)
os.write(1, b"from a library\\n")
os.system("echo from a child")

def doubled(number):
    return 2 * number

class Chatty(Model):
    def load(self, context):
        os.chdir("/")
        os.environ.clear()

    def predict(self, rows, context):
        return [self.answer(row["text"]) for row in rows]

    def answer(self, text):
        if text == "input":
            return input("your name? ")
        if text == "megabytes":
            for _ in range(50_000):
                print("x" * 99)
        if text in ("spawn", "forkserver"):
            with multiprocessing.get_context(text).Pool(1) as pool:
                return pool.apply_async(doubled, [21]).get(timeout=30)
        return text.upper()
"""


@pytest.fixture
def chatty(tmp_path, monkeypatch):
    """A file with a model that talks; the store is the default one, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chatty.py"
    path.write_text(CHATTY)
    return path


@pytest.fixture
def fleet(chatty, tmp_path):
    """The model served by `up` from `./store`; gives the log and the URL."""
    batchfleet("models", "publish", str(chatty), "--name", "chatty", "--version", "1")
    with (tmp_path / "log").open("wb") as log:
        process = spawn([*PROGRAM, "up", "--json"], stdout=subprocess.PIPE, stderr=log)
    try:
        yield tmp_path / "log", json.loads(process.stdout.readline())["redis_url"]
        process.terminate()
        assert process.stdout.read() == b""
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


def ask(url, text, exit_code=0):
    """The reply to one text."""
    done = batchfleet("infer", "chatty", text, "--json", "--redis-url", url, exit_code=exit_code)
    return json.loads(done.stdout)


def test_what_a_model_prints_goes_to_the_log_and_nothing_it_does_ends_the_fleet(fleet, chatty):
    log, url = fleet
    assert "HELLO" in str(ask(url, "hello")["outputs"])
    for said in ('{"ready": "not at all"}', "from a library", "from a child"):
        assert said in log.read_text()
    size = log.stat().st_size
    assert ask(url, "megabytes")["receipt"]["predict_ms"] < 5_000
    assert log.stat().st_size - size >= 5_000_000
    error = ask(url, "input", exit_code=1)["error"]
    assert error["name"] == "model_error"
    assert "EOFError" in error["message"]
    assert "batchfleet dev" in error["message"]
    # The first version has left the folder that it was started in, and emptied the environment.
    batchfleet("models", "publish", str(chatty), "--name", "chatty", "--version", "2")
    batchfleet("deploy", "chatty/2", "--redis-url", url, "--wait", "30")
    assert ask(url, "hello")["version"] == "2"


def test_a_worker_prints_nothing_but_its_ready_line(chatty, redis_server, namespace):
    batchfleet("models", "publish", str(chatty), "--name", "chatty", "--version", "1")
    server = ("--redis-url", redis_server.socket_url, "--namespace", namespace)
    batchfleet("deploy", "chatty", *server)
    with spawn(
        [*PROGRAM, "consumer", *server, "--allow-code", "own", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        ready = json.loads(process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == b""
    assert ready["models"] == ["chatty"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_of_processes_finds_the_functions_of_a_version(fleet, method):
    assert ask(fleet[1], method)["outputs"][0]["data"] == [42]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_works_where_a_version_is_tried(chatty, method):
    done = batchfleet("models", "try", str(chatty), "--text", method, "--json")
    assert json.loads(done.stdout)["outputs"][0]["data"] == [42]
    assert "from a library" in done.stderr


def test_a_trial_that_asks_or_ends_its_process_is_told_in_words(chatty):
    done = batchfleet(
        "models", "try", str(chatty), "--text", "input", exit_code=1, stdin=subprocess.DEVNULL
    )
    assert done.stdout == ""
    assert "EOFError" in done.stderr
    chatty.write_text(CHATTY.replace("return text.upper()", "os._exit(7)"))
    done = batchfleet("models", "try", str(chatty), "--text", "hello", "--json", exit_code=1)
    assert "exit code 7" in done.stdout + done.stderr
