"""One report when the server is lost and one when it is back, whichever thread notices first."""

import threading

from ..wire.errors import ServerError
from .clock import Clock
from .events import Events


class Outage:
    """Reports the loss of the server once and its return once, whoever notices first."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since_ms: float | None = None  # guarded by _lock

    def begins(self, error: ServerError) -> None:
        """Somebody got no answer."""
        with self._lock:
            if self._since_ms is not None:
                return
            self._since_ms = self._clock.monotonic_ms()
        self._events.emit("server.lost", reason=str(error))

    def ends(self) -> None:
        """Somebody got an answer."""
        with self._lock:
            if self._since_ms is None:
                return
            gap_ms = self._clock.monotonic_ms() - self._since_ms
            self._since_ms = None
        self._events.emit("server.back", gap_ms=round(gap_ms))
