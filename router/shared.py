"""What the threads of one router share: the broker, what the keeper knows, and reports."""

import threading
from collections.abc import Mapping
from random import Random

from ..broker.interface import Broker
from ..service.clock import Clock
from ..service.events import Events
from ..service.fault_points import FaultPoints
from ..service.logs import OncePerKind, shown_error
from ..service.outage import Outage
from ..service.watchdog import Watchdog
from .admission import Situation


class SharedState:
    """Read by all threads of a router; the methods may be called from any of them.

    Attributes:
        situations: what decides about the entries of each model, as the keeper last saw it. The
            keeper alone replaces it; it is never changed in place.
        look_soon: set by a pump whose deploy record is outdated or whose stream is missing: the
            keeper's next pass reads the fleet.
    """

    def __init__(
        self, name: str, broker: Broker, events: Events, clock: Clock, faults: FaultPoints
    ) -> None:
        self.name = name
        self.broker = broker
        self.events = events
        self.clock = clock
        self.faults = faults
        self.watchdog = Watchdog(events, clock, Outage(events, clock), Random())  # noqa: S311
        self.look_soon = threading.Event()
        self.situations: Mapping[str, Situation] = {}
        self._ahead = OncePerKind(clock)
        self._failed = OncePerKind(clock)
        self._dropped_lock = threading.Lock()
        self._dropped = OncePerKind(clock)  # guarded by _dropped_lock

    def report_dropped(self, kind: str, count: int) -> None:
        """Entries were dropped that nobody can be answered for; reported once, then in sums."""
        with self._dropped_lock:
            sums = self._dropped.summary()
            is_first = self._dropped.admit(kind, count)
        for known, sum_ in sums.items():
            self.events.emit("router.entry_dropped", kind=known, count=sum_)
        if is_first:
            self.events.emit("router.entry_dropped", kind=kind, count=count)

    def report_failed(self, model: str, error: Exception) -> None:
        """An entry, or a pump, failed by an error that nobody expected; reported once a minute."""
        kind = type(error).__name__
        self._failed.summary()  # after a minute it is reported again
        if self._failed.admit(f"{model} {kind}"):
            reason = shown_error(error)
            self.events.emit("router.entry_failed", model=model, kind=kind, reason=reason)

    def report_ahead(self, model: str, tenant: str, entry_id: bytes) -> None:
        """The id of an entry is ahead of the server's clock; reported once a minute."""
        self._ahead.summary()  # after a minute it is reported again
        if self._ahead.admit(f"{model} {tenant}"):
            self.events.emit(
                "stream.ids_ahead", model=model, tenant=tenant, entry_id=entry_id.decode()
            )
