"""Time as an argument. No other file of the package calls `time`.

Durations and limits are differences of `monotonic_ms`; `wall_ms` is for what leaves the process
(the wire, logs), because it may jump when the machine's clock is set.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Safe to use from any thread."""

    def monotonic_ms(self) -> float:
        """Milliseconds since a moment of no meaning; never goes back."""

    def wall_ms(self) -> float:
        """Milliseconds since 1970-01-01 UTC; may jump."""

    def thread_cpu_ms(self) -> float:
        """Milliseconds that this thread has computed; waiting for a busy CPU does not count."""


class SystemClock:
    """The machine's time."""

    def monotonic_ms(self) -> float:
        """Milliseconds since a moment of no meaning; never goes back."""
        return time.monotonic_ns() / 1e6

    def wall_ms(self) -> float:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        return time.time_ns() / 1e6

    def thread_cpu_ms(self) -> float:
        """Milliseconds that this thread has computed; waiting for a busy CPU does not count."""
        return time.thread_time_ns() / 1e6
