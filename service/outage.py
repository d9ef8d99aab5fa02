"""What a program knows of its server being away: told once, and asked after by one at a time."""

import threading

from ..wire.errors import Remedy, ServerError
from .clock import Clock
from .events import Events
from .logs import OncePerKind

# While the server is away, a program asks after it no more often than this.
_TURN_MS = 1000.0


class Outage:
    """Reports the loss of the server once and its return once, whoever notices first.

    Loops tell by name how they fare: the server is back when the last that suffered is. Errors that
    concern less than the whole server are told once a minute and code. Safe to use from any thread.
    """

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since_ms: dict[str, float] = {}  # guarded by _lock; who suffers, since when
        self._is_away = False  # guarded by _lock
        self._next_turn_ms = 0.0  # guarded by _lock
        self._refusals = OncePerKind(clock)

    @property
    def is_on(self) -> bool:
        """Whether anybody suffers."""
        return bool(self._since_ms)

    def begins(self, error: ServerError, loop: str = "") -> None:
        """Somebody got an error; without a name, anybody's next success ends it."""
        if error.remedy is Remedy.RECREATE:
            return  # routers make it anew and tell of it; of an undeployed model, nobody need
        if error.remedy is not Remedy.WAIT:
            self._report_refusal(error)
            return
        with self._lock:
            is_first = not self._since_ms
            self._since_ms.setdefault(loop, self._clock.monotonic_ms())
            self._is_away = True
        if is_first:
            self._events.emit("server.lost", reason=str(error))

    def _report_refusal(self, error: ServerError) -> None:
        self._refusals.summary()  # a minute later it is news again
        if self._refusals.admit(error.code):
            self._events.emit("server.refused", code=error.code, reason=str(error))

    def ends(self, loop: str = "") -> None:
        """Somebody got an answer: whoever waits for a turn may try."""
        with self._lock:
            self._is_away = False
            if not self._since_ms:
                return
            began_ms = min(self._since_ms.values())
            self._since_ms.pop("", None)
            self._since_ms.pop(loop, None)
            if self._since_ms:
                return
        self._events.emit("server.back", gap_ms=round(self._clock.monotonic_ms() - began_ms))

    def forget(self, loop: str) -> None:
        """A loop has ended; what it suffered from, somebody else's success ends."""
        with self._lock:
            since_ms = self._since_ms.pop(loop, None)
            if since_ms is not None:
                self._since_ms.setdefault("", since_ms)

    def turn_s(self, *, goes_first: bool = False) -> float:
        """Seconds until the caller may try; 0 gives it the turn, so that others wait.

        A program of twenty loops must not ask a server that is away twenty times as often. Who
        `goes_first` gets the turn at once.
        """
        with self._lock:
            left_ms = self._next_turn_ms - self._clock.monotonic_ms()
            if not self._is_away:
                return 0.0
            if left_ms <= 0 or goes_first:
                self._next_turn_ms = self._clock.monotonic_ms() + _TURN_MS
                return 0.0
        return left_ms / 1000
