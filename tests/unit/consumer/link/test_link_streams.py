"""Standard streams of device processes, and where their files lie."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from batchfleet.consumer.link.device_command import device_command, module_command
from batchfleet.consumer.link.link import DeviceLink, log_stream
from batchfleet.consumer.worker.interpreters import Interpreters
from batchfleet.models.cache import find_cache
from batchfleet.models.importing import builtin_draft
from batchfleet.models.store import Store
from batchfleet.service.settings import Settings

PATIENCE_S = 20
PROGRAM = """
import os, sys
os.write(1, b"from a library, ")
os.system("echo from a child")
print("heard", repr(sys.stdin.read()))
"""


def test_a_device_process_prints_where_its_log_goes_and_hears_nothing(capfd):
    link = DeviceLink([sys.executable, "-c", PROGRAM])
    assert link.end(PATIENCE_S) == "exit code 0"
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "from a library, from a child\nheard ''\n"


def test_a_program_without_stderr_has_nowhere_to_print_to(monkeypatch):
    def closed(_):
        raise OSError

    assert log_stream() == 2
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", closed)
        stream = log_stream()
    assert stream == subprocess.DEVNULL


def test_a_device_process_is_told_paths_that_no_change_of_folder_moves(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    command = device_command(Settings(cache="copies"), sources=Path("here"))
    assert command[command.index("--cache") + 1] == str(tmp_path / "copies")
    assert command[command.index("--sources") + 1] == str(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    command = device_command(Settings())
    assert command[command.index("--cache") + 1].startswith(str(tmp_path))


def test_where_there_is_no_place_for_a_cache_there_is_no_default_one(monkeypatch, tmp_path):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "gone"))
    assert find_cache("") is None
    assert find_cache("/copies") == Path("/copies")


def test_a_file_in_the_folder_hides_no_module(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise SystemExit('hidden')")
    done = subprocess.run(
        module_command(None, "consumer.device.opening"),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("said", [b"\xff\x1b[2J", b"\xed\xa0\x80"])
def test_an_interpreter_may_say_anything_of_why_it_is_unfit(tmp_path, said):
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    python = folder / "bin" / "python"
    python.write_bytes(b"#!/bin/sh\nprintf '" + said + b"' >&2\nexit 1\n")
    python.chmod(0o700)
    store = Store(str(tmp_path / "store"))
    draft = replace(builtin_draft("noop"), environment=str(folder))
    record = store.publish(draft, {}).record()
    settings = Settings(store=store.root, allow_environments=str(folder))
    found, reason = Interpreters(settings, {}).find("noop", record)
    assert found is None
    assert reason.isprintable()
    assert "\\x" in reason
