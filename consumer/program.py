"""The consumer program: one worker after the other (a fenced one starts over under a new name)."""

import secrets
import socket
from collections.abc import Mapping
from os import getpid
from random import Random

from ..broker.interface import Broker
from ..broker.redis_broker import RedisBroker
from ..service.clock import Clock
from ..service.descendants import reap_orphans
from ..service.events import Events
from ..service.fault_points import FaultPoints
from ..service.identity import new_worker_name
from ..service.lifecycle import StopSignal
from ..service.memory import free_host_bytes
from ..service.outage import Outage
from ..service.settings import Settings
from ..service.watchdog import Watchdog
from .link.device_command import device_command
from .link.device_environment import device_environment
from .link.link import DeviceLink
from .worker.context import Devices, WorkerContext
from .worker.keeper import OnReady, Outcome, WorkerKeeper
from .worker.worker import Worker


def devices_of(settings: Settings, environ: Mapping[str, str]) -> Devices:
    """Device processes as the settings say; `environ` is our environment."""
    allowed = device_environment(environ, settings.device_environment)
    return Devices(
        open_link=lambda python: DeviceLink(device_command(settings, python), environ=allowed),
        environ=allowed,
        reap=reap_orphans,
        free_bytes=free_host_bytes,
    )


class ConsumerProgram:
    """Runs workers until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        clock: Clock,
        *,
        broker: Broker | None = None,
        devices: Devices,
        faults: FaultPoints | None = None,
    ) -> None:
        """See `WorkerContext`; what is None is made as the settings say."""
        self._context = WorkerContext(
            settings=settings,
            events=events,
            clock=clock,
            watchdog=Watchdog(events, clock, Outage(events, clock), Random()),  # noqa: S311
            broker=broker or RedisBroker(settings.redis_url),
            devices=devices,
            faults=faults or FaultPoints(),
        )

    def run(self, stop: StopSignal, on_ready: OnReady) -> int:
        """Work until `stop`; returns the exit code.

        Raises:
            DeniedError: the server does not let us in; trying again would not help.
        """
        events = self._context.events
        while True:
            name = new_worker_name(socket.gethostname(), getpid(), secrets.token_hex(4))
            keeper = WorkerKeeper(Worker(self._context, name), on_ready)
            outcome = keeper.run(stop)
            events.emit("worker.stopped", worker=name, reason=outcome.value)
            if outcome is Outcome.STOPPED:
                return 0
            if outcome is Outcome.FENCED:
                events.emit("worker.fenced", worker=name)
            if keeper.was_ready:
                on_ready = _ready_already


def _ready_already(_: dict[str, object]) -> None:
    """A program says once that it is ready."""
