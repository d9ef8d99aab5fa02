"""`batchfleet up` where something is not as it should be."""

import json
import os
import select

import psutil
import pytest
from support.commands import batchfleet, staying
from support.fleet import until
from support.odd_stores import BAD_MODELS, BAD_VERSIONS, GOOD, make_good

from batchfleet.ops.starting import START_MS

PATIENCE_S = 60
# A model that loads until a file appears, for longer than `up` once waited.
SLOW = """\
import pathlib
import threading

import batchfleet


class Slow(batchfleet.Model):
    def load(self, context):
        pause = threading.Event()
        while not pathlib.Path(PLACE).exists():
            pause.wait(0.05)

    def predict(self, rows, context):
        return [row["text"] for row in rows]
"""


def running_up(place, *arguments):
    """`up --json` in a folder; what it says on stderr goes to `up.log` there."""
    return staying("up", *arguments, log=place / "up.log", cwd=place)


def facts_of(process, place, timeout_s=PATIENCE_S):
    poller = select.poll()
    poller.register(process.stdout, select.POLLIN | select.POLLHUP)
    assert poller.poll(timeout_s * 1000), told(place)
    line = process.stdout.readline()
    assert line, told(place)
    return json.loads(line)


def told(place):
    return (place / "up.log").read_text(errors="replace")


def command(place, *arguments, exit_code=0):
    done = batchfleet(*arguments, exit_code=exit_code, cwd=place)
    assert "Traceback" not in done.stderr
    return done


def test_up_serves_what_is_good_of_a_store_and_names_the_rest(tmp_path):
    """Everything that can be wrong at once, each as a model of its own."""
    store = tmp_path / "store"
    make_good(store)
    expected = {}
    for kind, (make, reason) in BAD_VERSIONS.items():
        if kind == "unreadable" and os.geteuid() == 0:
            continue
        apart = tmp_path / "apart" / f"m{len(expected)}"
        (apart / "root" / GOOD).mkdir(parents=True)
        make(apart / "root")
        name = f"m{len(expected)}"
        (apart / "root" / GOOD).rename(store / name)
        expected[f"{name}/2"] = "" if kind in ("another's", "version loop") else reason
    for kind, (make, reason) in BAD_MODELS.items():
        if kind == "dangling":
            make(store)
            expected["bad"] = reason
        elif kind in ("no name", "hidden", "note"):
            make(store)
    with running_up(tmp_path) as process:
        facts = facts_of(process, tmp_path)
        assert facts["models"] == [GOOD]
        reply = command(tmp_path, "infer", GOOD, "x", "--json", "--redis-url", facts["redis_url"])
        assert json.loads(reply.stdout)["version"] == "1"
        assert process.poll() is None
    lines = [line for line in told(tmp_path).splitlines() if line.startswith("warning: store:")]
    for name, reason in expected.items():
        assert any(f" {name} is left out" in line and reason in line for line in lines), name
    assert "Traceback" not in told(tmp_path)


def test_a_newest_version_that_is_bad_gives_way_to_the_one_before(tmp_path):
    store = tmp_path / "store"
    make_good(store)
    BAD_VERSIONS["unknown key"][0](store)
    shown = command(tmp_path, "models", "show", GOOD, "--json")
    assert json.loads(shown.stdout)["version"] == "1"
    assert "good/2 is left out" in shown.stderr
    listed = command(tmp_path, "models", "list")
    assert "good" in listed.stdout
    assert "unknown key" in listed.stderr
    left_out = json.loads(command(tmp_path, "models", "list", "--json").stdout)["left_out"]
    assert [one["name"] for one in left_out] == ["good/2"]
    command(tmp_path, "models", "show", "good/2", exit_code=1)


@pytest.mark.parametrize("name", ["a b%20c?d#e", "x" * 130])
def test_up_lives_under_any_folder_for_temporary_files(tmp_path, monkeypatch, name):
    make_good(tmp_path / "store")
    (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    with running_up(tmp_path) as process:
        url = facts_of(process, tmp_path)["redis_url"]
        reply = command(tmp_path, "infer", GOOD, "x", "--json", "--redis-url", url)
        assert json.loads(reply.stdout)["status"] == "ok"
    assert process.returncode == 0
    assert list((tmp_path / name).iterdir()) == []


def test_up_on_a_store_that_cannot_be_written_serves_all_the_same(tmp_path):
    """The copy of a deploy record does not lie there then, which is said."""
    store = tmp_path / "store"
    make_good(store)
    (store / GOOD / "deploy.json").mkdir()
    (store / GOOD / "deploy.json" / "in the way").touch()
    with running_up(tmp_path) as process:
        assert facts_of(process, tmp_path)["models"] == [GOOD]
    assert "no copy could be written" in told(tmp_path)


@pytest.mark.parametrize("program", ["up", "consumer"])
def test_a_store_that_anybody_may_write_is_refused_unless_it_is_named(tmp_path, program):
    store = tmp_path / "store"
    make_good(store)
    store.chmod(0o777)
    url = () if program == "up" else ("--redis-url", "redis://127.0.0.1:1/0")
    refused = command(tmp_path, program, *url, exit_code=1)
    assert f"every user can write to {store} (mode 0777; chmod o-w)" in refused.stderr
    assert f"--shared-store {store}" in refused.stderr
    other = command(tmp_path, program, *url, "--shared-store", "./other", exit_code=1)
    assert "mode 0777" in other.stderr
    if program == "up":
        with running_up(tmp_path, "--shared-store", str(store)) as process:
            assert facts_of(process, tmp_path)["models"] == [GOOD]


def test_a_version_that_anybody_may_write_is_refused_by_the_worker(tmp_path):
    make_good(tmp_path / "store")
    folder = tmp_path / "store" / GOOD / "1"
    folder.chmod(0o777)
    with running_up(tmp_path) as process:
        url = facts_of(process, tmp_path)["redis_url"]
        status = command(tmp_path, "status", "--json", "--redis-url", url).stdout
    assert f"every user can write to {folder} (mode 0777; chmod o-w); `shared_store`" in status


@pytest.mark.parametrize("mode", [0o666, 0o622])
def test_settings_that_anybody_may_write_are_refused(tmp_path, mode):
    path = tmp_path / "batchfleet.toml"
    path.write_text('allow_code = "any"\n')
    path.chmod(mode)
    refused = command(tmp_path, "settings", exit_code=1)
    assert f"mode {mode:04o}; chmod o-w" in refused.stderr
    path.chmod(0o644)
    assert "any" in command(tmp_path, "settings").stdout


def test_up_waits_for_a_slow_load_says_so_and_serves_what_is_ready(tmp_path):
    make_good(tmp_path / "store")
    go = tmp_path / "go"
    (tmp_path / "model.py").write_text(SLOW.replace("PLACE", repr(str(go))))
    command(tmp_path, "models", "publish", "model.py", "--name", "slow", "--version", "1")
    assert START_MS == 180_000
    with running_up(tmp_path) as process:
        until(lambda: "loading slow/1, 1" in told(tmp_path), "up says what it waits for")
        assert process.poll() is None
        go.touch()
        assert facts_of(process, tmp_path)["models"] == [GOOD, "slow"]
    assert process.returncode == 0


def test_up_ends_at_once_where_a_program_ends_before_it_is_ready(tmp_path):
    (tmp_path / "model.py").write_text(SLOW.replace("PLACE", repr(str(tmp_path / "never"))))
    command(tmp_path, "models", "publish", "model.py", "--name", "slow", "--version", "1")
    with running_up(tmp_path) as process:
        until(lambda: _consumer_of(process), "a consumer runs").kill()
        assert process.wait(PATIENCE_S) == 1
    assert "consumer 1 exited with code -9 before it was ready" in told(tmp_path)


def _consumer_of(process):
    children = psutil.Process(process.pid).children()
    return next((child for child in children if "consumer" in child.cmdline()), None)
