"""A roll as a picture: what both versions did second by second. Pure."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...wire.stats import VersionStats

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"
SECONDS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Second:
    """What one version did within so many seconds."""

    stats: VersionStats
    seconds: float


class Series:
    """The last seconds of both versions."""

    def __init__(self) -> None:
        self._before: Mapping[str, VersionStats] | None = None
        self._before_ms = 0.0
        self._seconds: dict[str, deque[Second]] = {}

    def add(
        self, counts: Mapping[str, VersionStats], versions: Sequence[str], now_ms: float
    ) -> None:
        """Add what was counted by now in all."""
        before, none = self._before, VersionStats()
        if before is not None and now_ms > self._before_ms:
            for name in versions:
                seconds = self._seconds.setdefault(name, deque(maxlen=SECONDS_SHOWN))
                done = counts.get(name, none).minus(before.get(name, none))
                seconds.append(Second(done, (now_ms - self._before_ms) / 1000))
        self._before, self._before_ms = counts, now_ms

    def values(self, version: str, measure: Callable[[Second], float | None]) -> list[float | None]:
        """One number for each second, the oldest first; None where there is nothing to measure."""
        return [measure(second) for second in self._seconds.get(version, ())]


def rate(second: Second) -> float | None:
    """Requests a second."""
    return second.stats.total / second.seconds


def error_share(second: Second) -> float | None:
    """Percent of the requests that failed by no fault of their callers."""
    total = second.stats.total
    return 100 * second.stats.errors / total if total else None


def p50_ms(second: Second) -> float | None:
    """The median latency."""
    return second.stats.quantile_ms(0.5)


def p99_ms(second: Second) -> float | None:
    """The latency of the slowest hundredth."""
    return second.stats.quantile_ms(0.99)


MEASURES: Mapping[str, Callable[[Second], float | None]] = {
    "requests/s": rate,
    "errors %": error_share,
    "p50 ms": p50_ms,
    "p99 ms": p99_ms,
}


def spark(values: Sequence[float | None], highest: float, *, is_ascii: bool = False) -> str:
    """Values from 0 to `highest` as a line of bars; a blank where there is none."""
    bars = _ASCII_BARS if is_ascii else _BARS
    top = len(bars) - 1
    return "".join(
        " " if value is None else bars[round(top * min(1.0, value / highest)) if highest else 0]
        for value in values
    )


def highest_of(*series: Sequence[float | None]) -> float:
    """The highest value of several series, which are then drawn to one scale."""
    return max((value for values in series for value in values if value is not None), default=0.0)
