"""The end of a device process, and of what it started, whoever else holds its connection."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from support.device_process import TEST_MODELS, Device, columns_of, texts
from support.fleet import runs, until

from batchfleet.consumer.link.frames import ChannelClosedError
from batchfleet.consumer.link.link import DeviceLink
from batchfleet.consumer.link.protocol import Done, Prepare, PreparedRows, PrepareRun, Run
from batchfleet.service import descendants

PARENT_MODELS = (sys.executable, str(Path(TEST_MODELS[1]).with_name("parent_models.py")))
LANE = 1
# A loss is to be seen within a second; a loaded machine may take longer to say so.
SOON_S = 5.0


@contextmanager
def linked(*, at_terminal=False):
    link = DeviceLink(PARENT_MODELS, at_terminal=at_terminal)
    device = Device(None, link)
    try:
        device.load("parent")
        yield device
    finally:
        link.kill("the test is over")
        link.end(SOON_S)


@pytest.fixture
def device():
    with linked() as running:
        yield running


def do(device, deed):
    """What the model says about a deed that it has done."""
    item = device.item(texts(deed))
    device.send(PrepareRun(1, LANE, [item]))
    end = device.ends_of([item.request])[item.request]
    return int(next(iter(columns_of(end).values())).item())


def order(device, deed):
    """Have something done that leaves no time for an answer."""
    device.send(PrepareRun(1, LANE, [device.item(texts(deed))]))


def check_lost(device):
    """The loss is seen soon."""
    give_up = monotonic() + SOON_S

    def listen():
        while monotonic() < give_up:
            device.channel.receive(SOON_S)

    with pytest.raises(ChannelClosedError):
        listen()


def check_gone(pid, timeout_s=SOON_S):
    """No such process runs any more."""
    until(lambda: not runs(pid), f"{pid} is gone", timeout_s)


@pytest.mark.parametrize("helper", ["fork_helper", "fork_pool"])
@pytest.mark.parametrize("end", ["leave", "crash"])
def test_its_end_is_seen_though_a_forked_helper_lives_on(device, helper, end):
    pid = do(device, helper)
    order(device, end)
    check_lost(device)
    reason = device.channel.end(SOON_S)
    assert reason == {"leave": "exit code 3", "crash": "killed by SIGSEGV"}[end]
    check_gone(pid)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_what_it_said_before_its_end_counts(monkeypatch, has_pidfd):
    if not has_pidfd:
        monkeypatch.setattr(descendants, "_pidfd", lambda _: -1)
    with linked() as device:
        do(device, "fork_helper")
        items = [device.item(texts("nothing")) for _ in range(20)]
        device.send(Prepare(LANE, items))
        seen = 0
        while seen < len(items):
            seen += len(device.expect(PreparedRows).items)
        for number, item in enumerate(items):
            device.send(Run(number, LANE, [(item.request, 0)]))
        order(device, "leave")
        assert device.channel._end.wait(SOON_S)
        done = [message for message in device.rest() if isinstance(message, Done)]
        assert len(done) == len(items)
        assert device.channel.end(SOON_S) == "exit code 3"


def test_nothing_is_sent_to_one_that_has_ended(device):
    do(device, "fork_helper")
    os.kill(device.channel.pid, signal.SIGKILL)
    assert device.channel._end.wait(SOON_S)
    with pytest.raises(ChannelClosedError):
        device.send(PrepareRun(1, LANE, [device.item(texts("nothing"))]))


def test_one_that_closes_its_connection_and_lives_is_ended(device):
    order(device, "close_all")
    check_lost(device)
    # It finds the connection closed itself, or is killed for it.
    assert device.channel.end(0.1, "it closed it") in {"exit code 0", "it closed it"}
    check_gone(device.channel.pid)


def test_one_that_stands_still_can_be_ended(device):
    order(device, "stand_still")
    device.channel.kill("predict took longer than its limit")
    check_lost(device)
    assert device.channel.end(SOON_S) == "predict took longer than its limit"


def test_a_forked_child_that_comes_back_answers_nobody(device):
    assert do(device, "come_back_twice") == 1
    assert do(device, "nothing") == 0
    assert not [message for message in device.seen if isinstance(message, Done)]


def test_its_children_end_at_the_usual_signals(device):
    assert do(device, "terminate") == -signal.SIGTERM
    assert do(device, "interrupt") == -signal.SIGINT
    assert do(device, "use_pool") == 42


def test_its_children_end_at_signals_that_its_parent_had_blocked():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with linked() as device:
            assert do(device, "terminate") == -signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


@pytest.mark.parametrize(
    "child", ["run", "run_apart", "run_deaf", "run_daemon", "fork_helper", "fork_pool"]
)
@pytest.mark.parametrize("at_terminal", [False, True])
def test_what_it_started_ends_with_it(child, at_terminal):
    with linked(at_terminal=at_terminal) as device:
        pid = do(device, child)
        device.channel.look()
        order(device, "leave")
        check_lost(device)
        device.channel.end(SOON_S)
        check_gone(pid)


@pytest.mark.parametrize("child", ["run", "run_apart", "run_daemon"])
def test_what_it_started_ends_with_one_that_is_killed(device, child):
    pid = do(device, child)
    device.channel.kill("it is late")
    assert device.channel.end(SOON_S) == "it is late"
    check_gone(pid)


WORKER = """
import sys
sys.path[:0] = sys.argv[1:2]
from batchfleet.consumer.link.link import DeviceLink
from support.device_process import Device, texts
from batchfleet.consumer.link.protocol import PrepareRun
device = Device(None, DeviceLink(sys.argv[2:]))
device.load("parent")
item = device.item(texts("run:" + sys.stdin.readline().strip()))
device.send(PrepareRun(1, 1, [item]))
device.ends_of([item.request])
print(device.channel.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_children_where_the_worker_is_killed(tmp_path):
    noted = tmp_path / "pid"
    folder = str(Path(TEST_MODELS[1]).parents[1])
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, folder, *PARENT_MODELS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with worker:
        worker.stdin.write(f"{noted}\n")
        worker.stdin.flush()
        device = int(worker.stdout.readline())
        child = int(noted.read_text())
        worker.kill()
        worker.wait(SOON_S)
        check_gone(device)
        check_gone(child)
