"""What a worker is given by its program; all of it outlives the worker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...broker.interface import Broker
from ...service.clock import Clock
from ...service.events import Events
from ...service.fault_points import FaultPoints
from ...service.lifecycle import MakeThread, stepped_thread
from ...service.outage import Outage
from ...service.settings import Settings
from ...service.watchdog import Watchdog
from ..batching.loss_history import LossHistory
from ..link.link import Link

OpenLink = Callable[[Path | None], Link]


def _nothing() -> None:
    """What device processes that leave nothing behind need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """How a worker's device processes are started.

    Attributes:
        open_link: starts one under an interpreter; None is the worker's own.
        versions_apart: whether each version has one for itself.
        environ: what they get of our environment.
        reap: forgets what they have left behind and has ended; the worker's main thread calls it.
        free_bytes: what the machine has left for them; 0 where it is not known.
    """

    open_link: OpenLink
    versions_apart: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    reap: Callable[[], None] = _nothing
    free_bytes: Callable[[], int] = int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What a worker is given.

    Attributes:
        broker: where requests come from.
        watchdog: watches the loops of the program, and knows whether the server is away.
        devices: how device processes are started.
        make_thread: makes the worker's threads.
        faults: moments that a test may have armed.
        losses: which versions have ended device processes.
    """

    settings: Settings
    events: Events
    clock: Clock
    watchdog: Watchdog
    broker: Broker
    devices: Devices
    make_thread: MakeThread = stepped_thread
    faults: FaultPoints = field(default_factory=FaultPoints)
    losses: LossHistory = field(default_factory=LossHistory)

    @property
    def outage(self) -> Outage:
        """Where errors of the server are reported that end no cycle of a loop."""
        return self.watchdog.outage
