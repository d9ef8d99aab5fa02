"""Programs as child processes; real ones, of a line or two of Python."""

import contextlib
import os
import sys

import pytest
from support.fleet import until
from support.manual_clock import ManualClock

from batchfleet.ops.children import Child, Program, ProgramError, environment_of
from batchfleet.service.clock import SystemClock
from batchfleet.service.settings import Settings
from batchfleet.service.settings_sources import load_settings, located

PATIENCE_MS = 20_000
READY = "import sys; print('{\"ready\": true}', flush=True); "
UNTIL_STOPPED = READY + "import signal; signal.sigwait([signal.SIGTERM])"


@pytest.fixture
def start():
    """Start a child that runs a line of Python; it is gone after the test."""
    children = []

    def start_child(code, clock=None):
        command = [sys.executable, "-c", code]
        program = Program(label="thing", command=command, environ={})
        child = Child(program, clock or SystemClock())
        children.append(child)
        child.start()
        return child

    yield start_child
    for child in children:
        child.end(0)


def wait_until_ready(child):
    return until(child.poll_ready, "the child is ready")


def wait_until_dead(child):
    """Wait without taking the exit code away from its owner, who may have taken it already."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_child_is_ready_when_its_line_comes(start):
    child = start(UNTIL_STOPPED)
    assert wait_until_ready(child) == {"ready": True}
    assert child.poll_ready() == {"ready": True}


def test_a_child_that_is_asked_to_stop_ends_in_time(start):
    child = start("import signal; signal.pthread_sigmask(0, [15]); " + UNTIL_STOPPED)
    wait_until_ready(child)
    child.ask_to_stop()
    assert child.end(PATIENCE_MS) is True
    assert child.pid is None
    assert child.end(PATIENCE_MS) is True


def test_a_child_that_does_not_stop_is_killed(start):
    child = start("import signal; signal.signal(15, signal.SIG_IGN); " + READY + "signal.pause()")
    wait_until_ready(child)
    child.ask_to_stop()
    assert child.end(50) is False
    assert child.pid is None


def test_a_child_that_ends_before_it_is_ready_is_told_with_its_exit_code(start):
    with pytest.raises(ProgramError, match="exited with code 7"):
        wait_until_ready(start("raise SystemExit(7)"))


def test_a_child_that_prints_something_else_is_refused(start):
    with pytest.raises(ProgramError, match="instead of its ready line"):
        wait_until_ready(start("print('hello', flush=True); input()"))


def test_a_child_that_has_said_nothing_is_not_ready(start):
    assert start("import signal; signal.pause()").poll_ready() is None


def test_a_child_that_says_its_line_and_ends_was_ready(start):
    child = start(READY + "sys.exit(3)")
    wait_until_dead(child)
    assert child.poll_ready() == {"ready": True}


def test_a_dead_child_is_told_once_and_started_again_after_its_delay(start):
    clock = ManualClock()
    child = start(READY + "sys.exit(3)", clock)
    wait_until_dead(child)
    assert child.poll() == 3
    assert child.pid is None
    assert child.poll() is None
    clock.advance(child.restart_ms - 1)
    child.poll()
    assert child.pid is None
    clock.advance(1)
    child.poll()
    assert child.pid is not None


def test_a_child_that_was_asked_to_stop_is_not_started_again(start):
    clock = ManualClock()
    child = start("raise SystemExit(1)", clock)
    wait_until_dead(child)
    child.poll()
    child.ask_to_stop()
    clock.advance(60_000)
    child.poll()
    assert child.pid is None


def test_what_a_child_prints_later_goes_to_stderr(start, capsys):
    child = start(READY + "print('from a model', flush=True)")
    wait_until_ready(child)
    wait_until_dead(child)
    child.poll()
    assert "from a model" in capsys.readouterr().err


def test_the_environment_of_a_child_gives_it_the_same_settings(tmp_path):
    settings = Settings(redis_url="redis://:secret@localhost/0", namespace="x", threads=3)
    environ = environment_of(settings, {"PATH": "/bin", "BATCHFLEET_THREADS": "9"})
    assert environ["PATH"] == "/bin"
    assert load_settings({}, environ, None)[0] == located(settings)
