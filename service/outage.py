"""What a program knows of its server being away: told once, and asked after by one at a time."""

import threading

from ..wire.errors import Remedy, ServerError
from .clock import Clock
from .events import Events
from .logs import OncePerKind

# While the server is away, a program asks after it no more often than this, …
_TURN_MS = 1000.0
# … and others so often while a loop that goes first asks: its answer lets all of them try.
_TURN_BEHIND_MS = 10_000.0


class Outage:
    """Reports the loss of the server once and its return once.

    Loops tell by name how they fare: the server is back when the last that suffered is. Any answer
    shows that it is there, an error too. Errors that concern less than the whole server are told
    once a minute and code. Safe to use from any thread.
    """

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._since_ms: dict[str, float] = {}  # guarded by _lock; who suffers, since when
        self._is_away = False  # guarded by _lock
        self._next_turn_ms = 0.0  # guarded by _lock
        self._turns_ms: dict[str, float] = {}  # guarded by _lock; who waits for a turn, until when
        self._went_first_ms = -_TURN_BEHIND_MS  # guarded by _lock
        self._refusals = OncePerKind(clock)

    @property
    def is_on(self) -> bool:
        """Whether anybody suffers."""
        return bool(self._since_ms)

    def begins(self, error: ServerError, loop: str = "") -> None:
        """Somebody got an error; without a name, anybody's next success ends it."""
        if error.remedy is not Remedy.WAIT:
            self.ends(loop)  # any answer shows that the server is up
            # Routers restore and report what is missing; not for an undeployed model.
            if error.remedy is not Remedy.RECREATE:
                self._report_refusal(error)
            return
        with self._lock:
            is_first = not self._since_ms
            self._since_ms.setdefault(loop, self._now_ms())
            self._is_away = True
        if is_first:
            self._events.emit("server.lost", reason=str(error))

    def _report_refusal(self, error: ServerError) -> None:
        self._refusals.summary()  # a minute later it is news again
        if self._refusals.admit(error.code):
            self._events.emit("server.refused", code=error.code, reason=str(error))

    def ends(self, loop: str = "") -> None:
        """A loop got an answer: all waiting loops may try."""
        with self._lock:
            if self._is_away:
                self._is_away = False
                self._turns_ms.clear()
                self._next_turn_ms = min(self._next_turn_ms, self._now_ms() + _TURN_MS)
            if not self._since_ms:
                return
            began_ms = min(self._since_ms.values())
            self._since_ms.pop("", None)
            self._since_ms.pop(loop, None)
            if self._since_ms:
                return
        self._events.emit("server.back", gap_ms=round(self._now_ms() - began_ms))

    def forget(self, loop: str) -> None:
        """A loop has ended; what it suffered from, somebody else's success ends."""
        with self._lock:
            self._turns_ms.pop(loop, None)
            since_ms = self._since_ms.pop(loop, None)
            if since_ms is not None:
                self._since_ms.setdefault("", since_ms)

    def turn_s(self, loop: str = "", *, goes_first: bool = False) -> float:
        """Seconds until the caller should ask again; 0 gives it the turn.

        A program of twenty loops must not ask a server that is away twenty times as often. Turns
        are given in the order in which loops first asked for one, so that none takes those of
        another. Who `goes_first` gets its turn at once.
        """
        with self._lock:
            now_ms = self._now_ms()
            if not self._is_away:
                return 0.0
            if goes_first:
                self._went_first_ms = now_ms
                return 0.0
            at_ms = self._turns_ms.pop(loop, None)
            if at_ms is None:
                at_ms = max(now_ms, self._next_turn_ms)
                is_behind = now_ms - self._went_first_ms < _TURN_BEHIND_MS
                self._next_turn_ms = at_ms + (_TURN_BEHIND_MS if is_behind else _TURN_MS)
            if at_ms <= now_ms:
                return 0.0
            self._turns_ms[loop] = at_ms
        # The server may be back before.
        return min(at_ms - now_ms, _TURN_MS) / 1000

    def _now_ms(self) -> float:
        return self._clock.monotonic_ms()
