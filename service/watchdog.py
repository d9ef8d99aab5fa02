"""The loops of a program: how their tries go, and which of them have come to a standstill.

A loop that neither succeeds nor fails is worse than one that fails: it looks well from outside.
"""

import threading
from dataclasses import dataclass, field
from random import Random
from typing import Self

from ..wire.errors import Remedy, ServerError
from .back_off import BackOff
from .clock import Clock
from .events import Events
from .logs import OncePerKind
from .outage import Outage

_MARGIN_MS = 5000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a loop tries again; one that `goes_first` waits for nobody's turn."""

    back_off: BackOff = field(default_factory=BackOff)
    goes_first: bool = False


class Loop:
    """One loop, which belongs to its thread; leaving its `with` block ends the watch over it.

    `seen_ms` is when it last completed a cycle, well or not; the watchdog reads it.
    """

    def __init__(self, watchdog: "Watchdog", name: str, block_s: float, pace: Pace) -> None:
        self.name = name
        self.limit_ms = 2000 * block_s + _MARGIN_MS
        self._watchdog = watchdog
        self._back_off = pace.back_off
        self._goes_first = pace.goes_first
        self._failures = 0
        self._next_ms = 0.0
        self._has_turn = False
        self.seen_ms = watchdog.clock.monotonic_ms()

    def worked(self) -> None:
        """A cycle was completed, and the server answered."""
        self.seen_ms = self._watchdog.clock.monotonic_ms()
        outage = self._watchdog.outage
        if self._failures or outage.is_on:
            self._failures = 0
            self._has_turn = False
            outage.ends(self.name)

    def passed(self) -> None:
        """A cycle was completed, and the server was not asked."""
        self.seen_ms = self._watchdog.clock.monotonic_ms()

    def failed(self, error: ServerError) -> None:
        """A cycle ended with an error: tell of it, and try again after a pause.

        Raises:
            ServerError: `error` itself, where trying again would not help.
        """
        if error.remedy is Remedy.STOP:
            raise error
        self.broke()
        self._watchdog.outage.begins(error, self.name)

    def broke(self) -> None:
        """A cycle ended with an error of ours, which says nothing of the server: pause as well."""
        self.passed()
        self._failures += 1
        self._has_turn = False
        delay_s = self._back_off.delay_s(self._failures, self._watchdog.chance)
        self._next_ms = self.seen_ms + 1000 * delay_s

    def delay_s(self) -> float:
        """Seconds until the next try is due; 0 = now."""
        if not self._failures or self._has_turn:
            return 0.0
        self.passed()
        left_ms = self._next_ms - self.seen_ms
        if left_ms > 0:
            return left_ms / 1000
        wait_s = self._watchdog.outage.turn_s(self.name, goes_first=self._goes_first)
        self._has_turn = wait_s == 0.0
        return wait_s

    def hurry(self) -> None:
        """There is news: the next try is due now."""
        self._has_turn = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the watch over it. May be called twice."""
        self._watchdog.dismiss(self)


_STEADY = Pace()
# For loops that all callers of a model wait for: whatever has come back is used within a second.
PROMPT = BackOff(longest_s=1.0)


class Watchdog:
    """Watches the loops of one program. `look` belongs to one thread, the rest to any."""

    def __init__(self, events: Events, clock: Clock, outage: Outage, chance: Random) -> None:
        self.clock = clock
        self.outage = outage
        self.chance = chance
        self._events = events
        self._lock = threading.Lock()
        self._loops: list[Loop] = []  # guarded by _lock; one a thread
        self._since_ms: dict[Loop, float] = {}  # of `look`
        self._faults = OncePerKind(clock)

    def watch(self, name: str, block_s: float, pace: Pace = _STEADY) -> Loop:
        """A loop that waits for `block_s` at most in one place; the caller dismisses it."""
        loop = Loop(self, name, block_s, pace)
        with self._lock:
            self._loops.append(loop)
        return loop

    def dismiss(self, loop: Loop) -> None:
        """A loop has ended. May be called twice."""
        with self._lock:
            if loop in self._loops:
                self._loops.remove(loop)
        self.outage.forget(loop.name)

    @property
    def stalled(self) -> tuple[str, ...]:
        """Names of the loops that stood still at the last look."""
        return tuple(sorted(loop.name for loop in tuple(self._since_ms)))

    def look(self) -> None:
        """Tell of loops that have come to a standstill, and of those that go on; once each."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - whoever watches must not be stopped by a fault
            if self._faults.admit(type(error).__name__):
                self._events.emit("watchdog.failed", reason=repr(error))

    def _look(self) -> None:
        now_ms = self.clock.monotonic_ms()
        with self._lock:
            loops = list(self._loops)
        for loop in loops:
            is_late = now_ms - loop.seen_ms > loop.limit_ms
            if is_late and loop not in self._since_ms:
                self._since_ms[loop] = loop.seen_ms
                silent_ms = round(now_ms - loop.seen_ms)
                self._events.emit("loop.stalled", loop=loop.name, silent_ms=silent_ms)
        for loop, since_ms in list(self._since_ms.items()):
            if loop not in loops:
                del self._since_ms[loop]
            elif now_ms - loop.seen_ms <= loop.limit_ms:
                del self._since_ms[loop]
                gap_ms = round(loop.seen_ms - since_ms)
                self._events.emit("loop.resumed", loop=loop.name, gap_ms=gap_ms)
