"""When a beat counter that stands still proves that its worker is gone. Pure.

No clock of another machine is compared, and no age of anything: an observer counts how long it has
itself seen the counter unchanged, by its own monotonic clock, in uninterrupted contact with the
same server. A stall of the server or of the observer restarts every watch, so that neither a
failover nor a long pause buries anybody (measured: with lease times in the server, a stall of
4.2 s buried eight of eight live workers).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A counter, and since when the observer has seen it at this value (monotonic)."""

    counter: float
    since_ms: float


class LivenessWatch(Generic[K]):
    """What one observer has seen of the beat counters. Owned by one thread.

    Args:
        lease_ms: how long a counter must stand still.
        contact_ms: looks further apart than this count as an interruption.
    """

    def __init__(self, lease_ms: float, contact_ms: float) -> None:
        self._lease_ms = lease_ms
        self._contact_ms = contact_ms
        self._seen: dict[K, Sighting] = {}
        self._looked_ms: float | None = None
        self._server = ""

    def interrupt(self) -> None:
        """Contact was lost: earlier observations prove nothing any more."""
        self._seen = {}
        self._looked_ms = None

    def look(self, counters: Mapping[K, float], now_ms: float, server: str) -> dict[K, float]:
        """Take in one look at all counters; returns those that prove a death, with their value.

        Args:
            counters: worker (any key) → beat counter, as read in this look.
            now_ms: monotonic, when the answer came.
            server: identity of the server's run; another one is an interruption.
        """
        gone = self._looked_ms is None or now_ms - self._looked_ms > self._contact_ms
        if gone or server != self._server:
            self.interrupt()
        self._looked_ms, self._server = now_ms, server
        seen: dict[K, Sighting] = {}
        for worker, counter in counters.items():
            known = self._seen.get(worker)
            same = known is not None and known.counter == counter
            seen[worker] = known if known is not None and same else Sighting(counter, now_ms)
        self._seen = seen
        return {
            worker: sighting.counter
            for worker, sighting in seen.items()
            if now_ms - sighting.since_ms >= self._lease_ms
        }
