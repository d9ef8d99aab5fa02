"""Time as an argument. No other file of the package calls `time`.

Durations and limits are differences of `monotonic_ms`; `wall_ms` is for what leaves the process
(the wire, logs), because it may jump when the machine's clock is set.
"""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Safe to use from any thread."""

    def monotonic_ms(self) -> float:
        """Milliseconds since a moment of no meaning; never goes back."""

    def wall_ms(self) -> float:
        """Milliseconds since 1970-01-01 UTC; may jump."""


class SystemClock:
    """The machine's time."""

    def monotonic_ms(self) -> float:
        """Milliseconds since a moment of no meaning; never goes back."""
        return time.monotonic_ns() / 1e6

    def wall_ms(self) -> float:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        return time.time_ns() / 1e6


class ManualClock:
    """A clock that stands still until it is told to move; for tests and simulations."""

    def __init__(self, monotonic_ms: float = 0.0, wall_ms: float = 1_700_000_000_000.0) -> None:
        self._lock = threading.Lock()
        self._monotonic_ms = monotonic_ms  # guarded by _lock
        self._wall_ms = wall_ms  # guarded by _lock

    def monotonic_ms(self) -> float:
        """Milliseconds advanced so far, plus the start."""
        with self._lock:
            return self._monotonic_ms

    def wall_ms(self) -> float:
        """The wall time given at the start, plus what was advanced and jumped."""
        with self._lock:
            return self._wall_ms

    def advance(self, duration_ms: float) -> None:
        """Let time pass.

        Raises:
            ValueError: a negative duration; monotonic time never goes back.
        """
        if duration_ms < 0:
            raise ValueError(f"time cannot pass by {duration_ms} ms")
        with self._lock:
            self._monotonic_ms += duration_ms
            self._wall_ms += duration_ms

    def jump_wall(self, offset_ms: float) -> None:
        """Set the wall clock forward or back, as an operator or a time server does."""
        with self._lock:
            self._wall_ms += offset_ms
