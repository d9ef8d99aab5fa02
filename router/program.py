"""The router program: a keeper that follows the fleet, and threads that pump its ingress."""

import socket
from collections.abc import Callable
from os import getpid
from secrets import token_hex

from ..broker.interface import Broker
from ..broker.redis_broker import RedisBroker
from ..service.clock import Clock
from ..service.events import Events
from ..service.fault_points import FaultPoints
from ..service.identity import new_worker_name
from ..service.lifecycle import MakeThread, StopSignal, stepped_thread
from ..service.settings import Settings
from .keeper import RouterKeeper
from .pump_threads import PumpThreads
from .shared import SharedState

_TICK_S = 0.1


class RouterProgram:
    """One router. The thread that calls `run` is the keeper's."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        clock: Clock,
        broker: Broker | None = None,
        make_thread: MakeThread = stepped_thread,
        faults: FaultPoints | None = None,
    ) -> None:
        name = new_worker_name(f"r-{socket.gethostname()}", getpid(), token_hex(4))
        broker = broker or RedisBroker(settings.redis_url)
        self.shared = SharedState(name, broker, events, clock, faults or FaultPoints())
        self.pumps = PumpThreads(self.shared, make_thread)
        self._keeper = RouterKeeper(settings, self.shared, self.pumps)
        self._is_ready = False

    def run(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> int:
        """Route until `stop`; returns the exit code.

        Raises:
            DeniedError: the server does not let us in; trying again would not help.
        """
        try:
            while not stop.is_set() and self.pumps.failure is None:
                self.tick(stop, on_ready)
                stop.wait(_TICK_S)
        finally:
            self.pumps.stop()
            self._keeper.close()
        self.shared.events.emit("router.stopped")
        if self.pumps.failure is not None:
            raise self.pumps.failure
        return 0

    def tick(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> None:
        """Do what is due now: follow the fleet, sweep, watch the threads.

        Raises:
            DeniedError: the server does not let us in.
        """
        self._keeper.tick(stop)
        if not self._is_ready and self._keeper.has_looked:
            self._is_ready = True
            self.shared.events.emit("router.started")
            on_ready({"models": sorted(self.shared.situations)})
        self.shared.watchdog.look()
