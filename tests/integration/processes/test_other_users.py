"""As a user whom the system does not know, without a home; and with no room on the disk."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.commands import PROGRAM, batchfleet, run
from support.odd_stores import GOOD, make_good
from support.traps import forge_built

from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.models.manifest import Manifest
from batchfleet.models.store import Store

STRANGER = 54321
PATIENCE_S = 60
MODEL = """\
import batchfleet


class Shout(batchfleet.Model):
    def predict(self, rows, context):
        return [row["text"].upper() for row in rows]
"""


def as_stranger(command):
    """The command under another user, who may read all: the interpreter may lie in a home."""
    change = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
    reading = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [*change, *reading, *command]


def can_change_user():
    if os.geteuid() != 0:
        return False
    try:
        done = subprocess.run(as_stranger(["true"]), capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


needs_another_user = pytest.mark.skipif(
    not can_change_user(), reason="only root with setpriv can become another user"
)


@pytest.fixture
def place():
    """A folder of the stranger's; those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="batchfleet-stranger-") as name:
        os.chown(name, STRANGER, STRANGER)
        yield Path(name)


class Stranger:
    def __init__(self, place, home):
        self.place = place
        self.environ = {"PATH": os.defpath, "TMPDIR": str(place), **home}

    def run(self, *arguments, exit_code=0, logs_trace=False):
        command = as_stranger([*PROGRAM, *arguments])
        done = run(command, exit_code=exit_code, env=self.environ, cwd=self.place)
        assert logs_trace or "Traceback" not in done.stderr
        return done

    def up(self):
        return subprocess.Popen(
            as_stranger([*PROGRAM, "up", "--json"]), env=self.environ, cwd=self.place,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.mark.slow
@needs_another_user
@pytest.mark.parametrize("home", [{}, {"HOME": "/nonexistent"}, {"HOME": ""}])
def test_a_stranger_without_a_home_publishes_tries_and_serves(place, home):
    stranger = Stranger(place, home)
    (place / "model.py").write_text(MODEL)
    os.chown(place / "model.py", STRANGER, STRANGER)
    stranger.run("models", "publish", "model.py", "--name", "shout", "--version", "1")
    listed = json.loads(stranger.run("models", "list", "--json").stdout)
    assert listed == {"models": {"shout": ["1"]}, "left_out": []}
    assert "HELLO" in stranger.run("models", "try", "shout", "--text", "hello").stdout
    assert "HELLO" in stranger.run("models", "try", "model.py", "--text", "hello").stdout
    process = stranger.up()
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        url = json.loads(line)["redis_url"]
        assert "HELLO" in stranger.run("infer", "shout", "hello", "--redis-url", url).stdout
    finally:
        process.terminate()
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Traceback" not in told


@needs_another_user
def test_a_strangers_cache_is_a_private_folder_among_the_temporary_ones(place):
    stranger = Stranger(place, {})
    ask = "from batchfleet.models.cache import default_cache; print(default_cache())"
    command = as_stranger([sys.executable, "-c", ask])
    done = run(command, env=stranger.environ)
    folder = Path(done.stdout.strip())
    assert folder == place / f"batchfleet-{STRANGER}"
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (STRANGER, 0o700)
    os.chown(folder, STRANGER + 1, STRANGER)
    assert "belongs to user" in run(command, exit_code=1, env=stranger.environ).stderr


@needs_another_user
def test_a_stranger_uses_no_store_of_somebody_else(place):
    make_good(place / "store")
    for path in (place / "store").rglob("*"):
        os.chown(path, STRANGER + 1, STRANGER)
    os.chown(place / "store", STRANGER + 1, STRANGER)
    stranger = Stranger(place, {})
    assert "belongs to user" in stranger.run("up", "--json", exit_code=1).stderr


@pytest.mark.slow
@needs_another_user
@pytest.mark.parametrize("way", ["--cache", "TMPDIR", "link"])
def test_a_stranger_runs_nothing_out_of_the_cache_of_an_attacker(place, way):
    """X1, X11, T18 (cache, link): a forged stamp and interpreter, by another user id."""
    attacker = STRANGER + 1
    place.chmod(0o1777)
    folder = place / (f"batchfleet-{STRANGER}" if way == "TMPDIR" else "theirs")
    environment = "env:" + "3" * 64
    trap = forge_built(folder, environment, place / "sprung")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, attacker, attacker)
        path.chmod(0o777)
    store = Store(str(place / "store"))
    store.publish(Manifest(model="m", version="1", runtime="noop", environment=environment), {})
    for path in (place / "store", *(place / "store").rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    (place / "link").symlink_to(folder)
    stranger = Stranger(place, {})
    cache = {"TMPDIR": [], "link": ["--cache", "link"]}.get(way, ["--cache", str(folder)])
    for command in (["try", "m", "--text", "x"], ["environment", "show", "m"]):
        said = stranger.run("models", *command, *cache, exit_code=1).stderr
        assert f"belongs to user {attacker}" in said
    assert not trap.was_sprung


@pytest.mark.slow
@needs_another_user
def test_a_stranger_loads_no_more_than_was_checked_of_the_store_of_an_attacker(place):
    """X14, T3: data of a store of another user, by way of a private copy; code of it is refused."""
    attacker = STRANGER + 1
    (place / "model.py").write_text(MODEL)
    store = Store(str(place / "theirs"))
    store.publish(
        *draft_of_file(place / "model.py", PublishOptions(model="code", version="1")),
    )
    weights = place / "weights.bin"
    weights.write_bytes(b"weights")
    store.publish(Manifest(model="data", version="1", runtime="noop"), {"w": weights})
    for path in (place / "theirs", *(place / "theirs").rglob("*")):
        os.chown(path, attacker, attacker)
    stranger = Stranger(place, {})

    def run(model, *more, exit_code=1):
        command = ["models", "try", model, "--store", "theirs", "--text", "x", *more]
        return stranger.run(*command, exit_code=exit_code, logs_trace=True).stderr

    assert f"belongs to user {attacker}" in run("code")
    run("data", exit_code=0)
    copies = list((place / f"batchfleet-{STRANGER}" / "versions").rglob("w"))
    assert [copy.read_bytes() for copy in copies] == [b"weights"]
    assert {copy.stat().st_uid for copy in copies} == {STRANGER}
    (place / "theirs" / "data" / "1" / "w").write_bytes(b"poison!")
    assert "differs from its manifest" in run("data", "--cache", "new")


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


def test_a_full_disk_leaves_nothing_half_written_and_one_sentence(tmp_path):
    """Files may grow to 200 kB here, as on a disk that has no more."""
    store = tmp_path / "store"
    make_good(store)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "weights.bin").write_bytes(b"x" * 1_000_000)
    publish = ("models", "publish", "model.py", "--name", "m", "--version", "1")
    options = {"exit_code": 1, "cwd": tmp_path, "preexec_fn": limit_files}
    done = batchfleet(*publish, "--file", "weights.bin", **options)
    assert "error: store: cannot publish to" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    survey = Store(str(store)).survey()
    assert (survey.models, survey.left_out) == ({GOOD: ["1"]}, [])
    assert list(store.rglob(".*")) == []


def test_a_cache_on_a_full_disk_keeps_nothing_half_written(tmp_path):
    """A remote store's file, of which 200 kB fit into the cache."""
    script = f"""
import resource
import fsspec
from batchfleet.models.manifest import Manifest
from batchfleet.models.store import Store
from batchfleet.wire.errors import StoreError
from pathlib import Path
weights = Path({str(tmp_path / "weights.bin")!r})
weights.write_bytes(b"x" * 1_000_000)
store = Store("memory://here", Path({str(tmp_path / "cache")!r}))
store.publish(Manifest(model="m", version="1", runtime="noop"), {{"w": weights}})
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    store.fetch("m", "1")
except StoreError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert "File too large" in done.stdout, done.stderr
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
