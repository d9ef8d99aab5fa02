"""A clock that stands still until it is told to move."""

import threading


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

    def thread_cpu_ms(self) -> float:
        """As though whoever lets time pass computed all the while."""
        return self.monotonic_ms()

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
