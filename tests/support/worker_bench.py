"""A worker whose device processes are stand-ins that say what a test tells them to."""

from collections import deque

from batchfleet.consumer.batching.state import Placement, TakenEntry
from batchfleet.consumer.link.frames import ChannelClosedError
from batchfleet.consumer.link.protocol import Hello, Load, Ready
from batchfleet.consumer.worker.worker import Worker
from batchfleet.service.settings import Settings
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.work import WorkEntry

from .loops import Watch
from .worker_context import worker_context

HELLO = Hello(1, 7, "3")


def entry(number):
    work = WorkEntry("q", b"%d-0" % number, f"r{number}", "t", b"x", 10**12)
    return TakenEntry(Placement(1, 0), work)


class StandIn:
    """A device process that says what a test tells it to; `None` in its place is its end."""

    def __init__(self):
        self.kill_reason = ""
        self.sent = []
        self.words = deque()
        self.pid = 7
        self.patience_s = None  # with which it was ended

    def says(self, *words):
        self.words += words

    def dies(self):
        self.words.append(None)

    def send(self, message):
        self.sent.append(message)

    def receive(self, _timeout_s):
        word = self.words.popleft() if self.words else HELLO
        if word is None:
            raise ChannelClosedError
        return [word]

    def wake(self):
        pass

    def look(self):
        pass

    def kill(self, reason):
        self.kill_reason = reason
        self.words.clear()
        self.dies()

    def end(self, patience_s, _why=""):
        self.patience_s = patience_s
        return self.kill_reason or "exit code 3"

    @property
    def loads(self):
        """Numbers of the lanes that it was to load."""
        return [message.lane for message in self.sent if isinstance(message, Load)]


class Idle:
    """A thread whose passes the test makes."""

    def start(self):
        pass

    def join(self, timeout=None):
        pass


class Bench:
    """A worker whose device processes are stand-ins."""

    def __init__(self, **settings):
        self.watch = Watch()
        self.links = []
        self.failure = None
        self.worker = Worker(
            worker_context(
                self.watch,
                MemoryBroker(MemoryServer()),
                settings=Settings(**settings),
                open_link=self.open_link,
                make_thread=lambda *_: Idle(),
            ),
            "w1",
        )

    def open_link(self, _python):
        if self.failure is not None:
            raise self.failure
        self.links.append(StandIn())
        return self.links[-1]

    def open(self, model, **limits):
        record = VersionRecord(version="1", limits=Limits(**limits))
        return self.worker.open_lane(model, record, None)

    def unit_of(self, lane):
        return self.worker.unit_of(lane)

    def step(self, unit, *words):
        """One pass for each word."""
        for word in words:
            unit.link.says(word)
            unit.step()

    def come_up(self, unit):
        """Start a device process that says hello."""
        assert unit.link is None
        unit.step()
        self.step(unit, HELLO)
        return unit.link

    def make_ready(self, unit, *lanes):
        self.step(unit, *(Ready(lane.number, [], "a" * 16, 0, 1.0, [], 0) for lane in lanes))

    def lose(self, unit):
        self.step(unit, None)

    def told(self, event):
        return [fields for name, fields in self.watch.log.lines if name == event]
