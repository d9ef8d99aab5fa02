import os
import queue
import select
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from batchfleet.service.lifecycle import (
    StopSignal,
    guarded_thread,
    interrupts_left_to_children,
    spawn,
)

TIMEOUT_S = 20
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def python(code, **options):
    """A child that runs `code`, with pipes to speak to it; not bound to this process."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        **options,
    )


def assert_ends(pipe):
    """The writing end of a pipe is closed in time: all processes that held it are gone."""
    readable, _, _ = select.select([pipe], [], [], TIMEOUT_S)
    assert readable, "a process still lives"
    assert pipe.read() in ("", b"")


def test_stop_signal_wakes_every_waiter():
    stop = StopSignal()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(stop.wait(TIMEOUT_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    stop.set()
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert seen == [True, True, True]
    assert stop.is_set()
    assert select.select([stop], [], [], 0)[0] == [stop]


def test_wait_tells_that_nobody_asked():
    stop = StopSignal()
    assert stop.wait(0) is False
    assert stop.wait(0.001) is False
    assert not stop.is_set()


def test_descriptors_are_given_back():
    process = psutil.Process()
    before = process.num_fds()
    for _ in range(20):
        StopSignal()
    assert process.num_fds() <= before + 2


STOPPABLE = """
from batchfleet.service.lifecycle import StopSignal
stop = StopSignal()
stop.install()
print("ready", flush=True)
stop.wait(60)
print("stopping", flush=True)
input()
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_asks_and_second_one_ends(number):
    with python(STOPPABLE) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == "stopping\n"
        child.send_signal(number)
        assert child.wait(TIMEOUT_S) == 128 + number
        assert child.stdout.read() == ""


def test_one_signal_leaves_time_to_finish():
    with python(STOPPABLE) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "stopping\n"
        out, _ = child.communicate("\n", TIMEOUT_S)
        assert (out, child.returncode) == ("stopped\n", 0)


PARENT = """
import subprocess, sys
from batchfleet.service.lifecycle import spawn
child = spawn([sys.executable, "-c", "print('child', flush=True); input()"], stdin=subprocess.PIPE)
input()
"""


@linux_only
def test_child_dies_with_a_killed_parent():
    with python(PARENT) as parent:
        assert parent.stdout.readline() == "child\n"
        parent.kill()
        assert_ends(parent.stdout)


@linux_only
def test_child_notices_that_its_parent_was_gone_already():
    code = "from batchfleet.service.lifecycle import die_with_parent; die_with_parent(1 << 22)"
    with python(code) as child:
        assert child.wait(TIMEOUT_S) == -signal.SIGKILL


def test_child_of_a_living_parent_lives():
    code = (
        "import sys; from batchfleet.service.lifecycle import die_with_parent; "
        f"die_with_parent({os.getpid()}); die_with_parent(); print('alive')"
    )
    with python(code) as child:
        assert child.communicate(timeout=TIMEOUT_S)[0] == "alive\n"


@linux_only
def test_child_dies_with_the_thread_that_started_it():
    children = queue.SimpleQueue()
    go = threading.Event()

    def start():
        command = [sys.executable, "-c", "print('up', flush=True); input()"]
        children.put(spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        go.wait(TIMEOUT_S)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        child = children.get(timeout=TIMEOUT_S)
        assert child.stdout.readline() == b"up\n"
    finally:
        go.set()
    thread.join(TIMEOUT_S)
    with child:
        assert child.wait(TIMEOUT_S) == -signal.SIGKILL


def test_spawn_gives_the_child_a_session_of_its_own():
    code = "import os; print(os.getsid(0) == os.getpid())"
    with spawn([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.communicate(timeout=TIMEOUT_S)[0] == b"True\n"


def test_spawn_of_nothing_raises():
    with pytest.raises(FileNotFoundError):
        spawn(["/no/such/program"])


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3)])
def test_failure_of_a_thread_reaches_its_owner(error):
    failures = []

    def target():
        raise error

    thread = guarded_thread("reader", target, failures.append)
    thread.start()
    thread.join(TIMEOUT_S)
    assert failures == [error]
    assert (thread.name, thread.daemon) == ("reader", True)


def test_thread_that_ends_well_reports_nothing():
    failures, done = [], threading.Event()
    thread = guarded_thread("reader", done.set, failures.append)
    thread.start()
    thread.join(TIMEOUT_S)
    assert done.is_set()
    assert failures == []


@pytest.fixture
def interrupted_as_at_a_terminal():
    """A shell without job control starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupted_as_at_a_terminal")
def test_an_interrupt_may_be_left_to_a_child():
    with interrupts_left_to_children():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
