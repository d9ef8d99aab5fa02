"""A device process's connection, its start and its end."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.device_process import (
    TEST_MODELS,
    TIMEOUT_S,
    columns_of,
    limited,
    release,
    running_device,
    start,
    texts,
)

from batchfleet.consumer.link.frames import FrameChannel
from batchfleet.consumer.link.protocol import (
    EXIT_MODEL_LEFT,
    Done,
    Hello,
    Prepare,
    PreparedRows,
    PrepareRun,
    Ready,
    Stop,
)

LANE = 1


def test_megabytes_in_both_directions_do_not_block(device):
    device.load("plain", **limited(max_batch_size=8))
    items = [device.item(texts(letter * 1_000_000)) for letter in "abcdefgh"]
    for number, item in enumerate(items):
        device.send(PrepareRun(number, LANE, [item]))
    ends = device.ends_of([item.request for item in items])
    assert [columns_of(ends[item.request])["text"] for item in items] == [
        [letter * 1_000_000] for letter in "abcdefgh"
    ]


def test_stop_finishes_the_batch_in_hand_and_nothing_else(device, fifo):
    device.load("waiting")
    device.load("polished")
    device.send(PrepareRun(1, LANE, [device.item(texts(str(fifo)))]))
    device.send(PrepareRun(2, 2, [device.item(texts("never"))]))
    device.send(Prepare(2, [device.item(texts("marker"))]))
    device.expect(PreparedRows)
    device.send(Stop())
    device.send(Prepare(2, [device.item(texts("after"))]))
    release(fifo)
    done = device.expect(Done)
    assert (done.batch, len(done.answers)) == (1, 1)
    assert device.rest() == []
    assert device.process.wait(TIMEOUT_S) == 0


def test_signals_to_the_group_do_not_end_it(device):
    for number in (signal.SIGINT, signal.SIGTERM):
        device.process.send_signal(number)
    assert isinstance(device.load("plain"), Ready)


@pytest.mark.parametrize("model", ["plain", "endless"])
def test_it_exits_when_the_main_process_closes_even_in_the_middle_of_a_batch(model):
    with running_device(stdout=subprocess.PIPE, text=True) as device:
        device.load(model)
        device.send(PrepareRun(1, LANE, [device.item(texts("a"))]))
        if model == "endless":
            assert device.process.stdout.readline() == "predicting\n"
        else:
            device.expect(Done)
        device.channel.close()
        assert device.process.wait(TIMEOUT_S) == 0


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
from support.device_process import TEST_MODELS, start
print(start(TEST_MODELS, int(sys.argv[2])).pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent_though_the_socket_stays_open():
    ours, theirs = socket.socketpair()
    channel = FrameChannel(ours)
    tests = str(Path(TEST_MODELS[1]).parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tests, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        device = int(parent.stdout.readline())
        alive = os.pidfd_open(device)
        (hello,) = channel.receive(TIMEOUT_S)
        assert hello.pid == device
        parent.kill()
        assert select.select([alive], [], [], TIMEOUT_S)[0], "the device process lives on"
    os.close(alive)
    channel.close()
    theirs.close()


def test_it_does_not_start_for_a_parent_that_is_gone_already():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start(TEST_MODELS, theirs.fileno(), parent=1)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        theirs.close()
        assert ours.recv(1) == b"", "it has said hello"


def test_a_model_that_calls_exit_ends_the_process_instead_of_hanging_it(device):
    device.load("faulty")
    device.send(PrepareRun(1, LANE, [device.item(texts("exit"))]))
    assert device.process.wait(TIMEOUT_S) == EXIT_MODEL_LEFT


def test_a_message_meant_for_the_main_process_ends_the_connection(device):
    device.send(Hello(1, 1, "3"))
    assert device.process.wait(TIMEOUT_S) == 70
