"""The command line on streams that are closed, full, ASCII, or read by nobody: real processes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("batchfleet")
FULL = "/dev/full"
TIMEOUT_S = 60
ENVIRON = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

ASCII = {
    "C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "declared": {"PYTHONIOENCODING": "ascii"},
}
# With and without a table, through click and through rich, before and after a command is found.
COMMANDS = {
    "table": "settings",
    "json": "settings --json",
    "help": "infer --help",
}
FAILURES = {
    "no command": ("nothing", 2),
    "no server": ("status --redis-url redis://127.0.0.1:1", 1),
}


def run(words, redirections="", environ=None):
    """What a shell makes of the command; text that is no ASCII stays bytes."""
    command = f"{PROGRAM} {words} {redirections}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**ENVIRON, **(environ or {})},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"Exception ignored" not in done.stderr, done.stderr
    return done


def only_line(raw):
    text = raw.decode()
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return text.strip()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("environ", ASCII.values(), ids=ASCII)
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_ascii_gets_text_with_replacements(words, environ):
    done = run(words, environ=environ)
    assert (done.returncode, done.stderr) == (0, b"")
    if words.endswith("--json"):
        assert json.loads(done.stdout.decode())  # which is UTF-8 everywhere
    else:
        assert done.stdout.isascii()
        assert b"?" in done.stdout


def test_ascii_gets_errors_with_replacements():
    environ = ASCII["C locale"]
    done = run("settings --model é --redis-url redis://127.0.0.1:1", environ=environ)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.isascii()
    assert b"is not a name" in done.stderr


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_is_one_line(words):
    done = run(words, f"> {FULL}")
    assert done.returncode == 1
    assert (
        only_line(done.stderr) == "error: output: cannot write to stdout: No space left on device"
    )


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_closed_stdout_is_one_line(words):
    done = run(words, ">&-")
    assert done.returncode == 1
    assert "cannot write to stdout: Bad file descriptor" in only_line(done.stderr)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_who_has_seen_enough_is_told_nothing(words):
    done = run(words, "| true; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, 1), "0 where all was written before the reader had gone"
    assert done.stderr == b""


@pytest.mark.parametrize("redirections", ["2>&-", f"2> {FULL}"])
@pytest.mark.parametrize(("words", "exit_code"), FAILURES.values(), ids=FAILURES)
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(words, exit_code, redirections):
    done = run(words, redirections)
    assert (done.returncode, done.stdout) == (exit_code, b"")


def test_all_streams_closed():
    assert run("settings", "<&- >&- 2>&-").returncode == 1
    assert run("nothing", "<&- >&- 2>&-").returncode == 2


def test_a_closed_stdin_is_an_empty_one():
    done = run("infer m --input -", "<&-")
    assert done.returncode == 1
    assert b"bad_inputs" in done.stderr


def test_a_question_without_anybody_to_ask_ends_the_command(redis_url, namespace):
    environ = {"BATCHFLEET_REDIS_URL": redis_url, "BATCHFLEET_NAMESPACE": namespace}
    done = run("requests purge m", "<&-", environ)
    assert done.returncode == 1


def on_terminal(words, environ):
    """What a terminal of 20 columns shows."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *words.split()], stdin=slave, stdout=slave, stderr=slave,
        env={**ENVIRON, "COLUMNS": "20", **environ},
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:
        pass  # how a terminal says that nobody writes any more
    os.close(master)
    assert process.wait(TIMEOUT_S) in (0, 1)
    assert b"Traceback" not in shown, shown
    return shown


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}], ids=str)
@pytest.mark.parametrize("words", ["settings", "settings --lease-ms 0"])
def test_a_narrow_plain_terminal(words, environ):
    shown = on_terminal(words, environ)
    assert shown
    if words != "settings":
        assert b"\x1b[" not in shown


def test_a_terminal_that_can_has_colour():
    assert b"\x1b[31merror" in on_terminal("settings --lease-ms 0", {"TERM": "xterm"})
