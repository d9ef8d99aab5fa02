"""Loops for tests: watched, on a clock that the test moves, with events that it can read."""

from dataclasses import dataclass, field
from random import Random

from batchfleet.service.events import Events
from batchfleet.service.outage import Outage
from batchfleet.service.watchdog import Pace, Watchdog

from .manual_clock import ManualClock


class Lines:
    """A logger that keeps what it is given, as (event, fields)."""

    def __init__(self):
        self.lines = []

    def __getattr__(self, _level):
        return lambda name, **fields: self.lines.append((name, fields))

    def names(self):
        return [name for name, _ in self.lines]


@dataclass
class Watch:
    """A watchdog with all that it needs."""

    clock: ManualClock = field(default_factory=ManualClock)
    log: Lines = field(default_factory=Lines)

    def __post_init__(self):
        self.outage = Outage(Events(self.log), self.clock)
        self.watchdog = Watchdog(Events(self.log), self.clock, self.outage, Random(1))

    def loop(self, name="loop", block_s=1.0, **pace):
        return self.watchdog.watch(name, block_s, Pace(**pace))


def watched_loop():
    return Watch().loop()
