"""Bursts of load, and what they tell about two contestants. Pure: no clock, no process.

The speed of a machine drifts while it measures, so contestants take turns, A B A B …, and what
compares them is the ratio inside each pair of neighbours; the figure is the median over the pairs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

Figure = Callable[["Burst"], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one burst asks for: so many requests, from callers that wait for each of their own."""

    requests: int
    callers: int

    def __post_init__(self) -> None:
        """Refuse a burst that measures nothing."""
        if self.requests < 1 or self.callers < 1:
            raise ValueError("a burst needs a request and a caller at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What one burst measured.

    Attributes:
        requests: how many were answered.
        duration_s: from the first sent to the last answered.
        p50_ms, p99_ms: percentiles of what the callers waited.
        cpu_s: process → CPU seconds that it used meanwhile.
    """

    requests: int
    duration_s: float
    p50_ms: float
    p99_ms: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def throughput_per_s(self) -> float:
        """Answers a second."""
        return self.requests / self.duration_s

    @property
    def cpu_us_per_request(self) -> dict[str, float]:
        """Process → CPU microseconds for one request."""
        return {name: spent / self.requests * 1e6 for name, spent in self.cpu_s.items()}


def percentiles_ms(waited_s: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds.

    Raises:
        ValueError: nothing was measured.
    """
    if not waited_s:
        raise ValueError("no request was answered")
    p50_s, p99_s = np.percentile(waited_s, [50, 99])
    return float(p50_s) * 1000, float(p99_s) * 1000


def throughput_per_s(burst: Burst) -> float:
    """Answers a second, as a figure."""
    return burst.throughput_per_s


def p50_ms(burst: Burst) -> float:
    """The median wait, as a figure."""
    return burst.p50_ms


def p99_ms(burst: Burst) -> float:
    """The 99th percentile of the wait, as a figure."""
    return burst.p99_ms


def median_of(bursts: Iterable[Burst], figure: Figure) -> float:
    """The median of a figure over bursts.

    Raises:
        ValueError: no bursts.
    """
    values = [figure(burst) for burst in bursts]
    if not values:
        raise ValueError("no burst was measured")
    return median(values)


def ratios(ours: Sequence[Burst], other: Sequence[Burst], figure: Figure) -> list[float]:
    """The figure of ours ÷ that of the other, pair by pair.

    Raises:
        ValueError: no pairs, or a burst without a partner.
    """
    if not ours:
        raise ValueError("no pair was measured")
    return [figure(one) / figure(two) for one, two in zip(ours, other, strict=True)]


def median_cpu_us_per_request(bursts: Sequence[Burst]) -> dict[str, float]:
    """Process → median over bursts of the CPU microseconds for one request."""
    names = bursts[0].cpu_s if bursts else ()
    return {
        name: median(burst.cpu_us_per_request.get(name, 0.0) for burst in bursts) for name in names
    }
