"""A device process and the main process's end of its connection, for tests."""

import itertools
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from batchfleet.consumer.link.frames import ChannelClosedError, FrameChannel
from batchfleet.consumer.link.protocol import (
    Answers,
    Done,
    Failure,
    Hello,
    Item,
    Load,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
)
from batchfleet.wire.codec import JSON, decode_body, encode_body
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import kind_of
from batchfleet.wire.signature import Signature
from batchfleet.wire.tensors import decode_columns

TIMEOUT_S = 20.0
TEST_MODELS = (sys.executable, str(Path(__file__).with_name("device_models.py")))
HOSTILE = (sys.executable, str(Path(__file__).with_name("hostile_models.py")))
REAL = (sys.executable, "-m", "batchfleet.consumer.device")


class Device:
    """Talks to a device process. Messages that a test does not wait for are kept in `seen`.

    `lane` is the one loaded last.
    """

    def __init__(self, process, channel):
        self.process = process
        self.channel = channel
        self.seen = []
        self.lane = 0
        self._numbers = itertools.count(1)

    def send(self, message):
        self.channel.send(message)

    def expect(self, *kinds):
        """The next message of one of these kinds."""
        ends = time.monotonic() + TIMEOUT_S
        while time.monotonic() < ends:
            for at, message in enumerate(self.seen):
                if isinstance(message, kinds):
                    return self.seen.pop(at)
            self.seen += self.channel.receive(TIMEOUT_S)
        raise AssertionError(f"no {kinds} within {TIMEOUT_S} s, but {self.seen}")

    def rest(self):
        """Everything that it says until it closes the connection."""
        rest, self.seen = self.seen, []
        with suppress(ChannelClosedError):
            while True:
                rest += self.channel.receive(TIMEOUT_S)
        return rest

    def load(self, model, **options):
        """Load a version as the next lane; returns `Ready` or `Refused`."""
        self.begin_load(model, **options)
        return self.expect(Ready, Refused)

    def begin_load(
        self, model, *, store="/", version="1", device="cpu", beside=("", 0, 0), **record
    ):
        """The same without waiting for the answer; `beside` are the last fields of `Load`."""
        self.lane += 1
        raw = VersionRecord(version=version, **record).to_wire()
        self.send(Load(self.lane, model, version, store, device, 1, raw, *beside))

    def load_published(self, store, manifest):
        """Load a version of a store as the next lane; returns `Ready` or `Refused`."""
        self.lane += 1
        record = manifest.record().to_wire()
        self.send(
            Load(self.lane, manifest.model, manifest.version, store, "cpu", 1, record, "", 0, 0)
        )
        return self.expect(Ready, Refused)

    def item(self, inputs, **fields):
        """A request with the next free number; `inputs` are encoded unless they are bytes."""
        values = {
            "content_type": JSON,
            "accept": JSON,
            "truncate": None,
            "parameters": None,
            "outputs": None,
        } | fields
        raw = inputs if isinstance(inputs, bytes) else encode_body(inputs, values["content_type"])
        return Item(request=next(self._numbers), inputs=raw, **values)

    def prepare_run(self, items, batch=1):
        """Run these requests in the lane loaded last; returns `Done`."""
        self.send(PrepareRun(batch, self.lane, items))
        return self.expect(Done)

    def ends_of(self, numbers):
        """The answer or failure of each of these requests, from all messages that may carry one."""
        ends = {}
        while set(numbers) - set(ends):
            message = self.expect(Done, Answers, PreparedRows)
            ends |= ends_in(message)
        return ends


def ends_in(message):
    """Request number → `Answer` or `Failure`, of one message."""
    found = [*message.failures, *getattr(message, "answers", ())]
    return {end.request: end for end in found}


def columns_of(answer, accept=JSON):
    """The outputs of an answer as arrays and lists of strings."""
    return decode_columns(decode_body(answer.outputs, accept))


def failure_kind(end):
    """The error kind of a request that must have failed."""
    assert isinstance(end, Failure), end
    return kind_of(end.code)


def release(fifo):
    """Let a model go on that waits for this pipe."""
    fifo.write_bytes(b"")


def texts(*values):
    return {"text": list(values)}


def limited(**limits):
    """Part of a version record."""
    return {"limits": Limits(**limits)}


def signed(inputs=(), outputs=()):
    """Part of a version record."""
    return {"signature": Signature(inputs=tuple(inputs), outputs=tuple(outputs))}


def start(command, descriptor, parent=None, **options):
    """Start a device process on an inherited descriptor."""
    arguments = ["--fd", str(descriptor), "--parent", str(parent or os.getpid())]
    return subprocess.Popen([*command, *arguments], pass_fds=[descriptor], **options)


@contextmanager
def running_device(command=TEST_MODELS, **options):
    """A device process that has said hello; killed at the end where it is still there."""
    ours, theirs = socket.socketpair()
    process = start(command, theirs.fileno(), **options)
    theirs.close()
    channel = FrameChannel(ours)
    device = Device(process, channel)
    try:
        assert device.expect(Hello).pid == process.pid
        yield device
    finally:
        channel.close()
        process.kill()
        process.wait(TIMEOUT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
