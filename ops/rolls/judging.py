"""Whether a version is worse than the stable one, from what both did at the same time. Pure.

A limit breaks only where chance, or one bad moment, is no explanation:

- Shares are compared by the bounds of their confidence intervals (Wilson), so that few requests
  prove nothing unless they all fail.
- Latency and device time are compared window by window. The router divides requests by a hash, so
  that a burst meets both versions alike; what hits one version's process alone for a moment (a
  process that was not scheduled) spoils one window, and the median of the windows stands.
- The device time of a row falls with the size of the batch, and a version with little traffic has
  small batches. A version is slower only where its traffic is at least as much as the other's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from ...wire.stats import LATENCY_EDGES_MS, VersionStats
from .plan import Plan

# One-sided 99.5 %: looks are taken once a second, and each is a chance to be wrong.
_SIGMAS = 2.58
_ERRORS_MIN = 5
_LATE_MIN = 5
_LATE_SHARE = 0.01
_P99_MARGIN_MS = 50.0
_WINDOWS_MIN = 3
_WINDOW_REQUESTS_MIN = 20
_ROWS_MIN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What both versions did within the same stretch of time."""

    stable: VersionStats
    canary: VersionStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Limits that are broken for certain, and those that seem to be; each in words."""

    broken: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()


def bounds(count: int, total: int) -> tuple[float, float]:
    """The Wilson interval of a share of which `count` of `total` were seen."""
    if not total:
        return 0.0, 1.0
    share, weight = count / total, _SIGMAS**2 / total
    middle = share + weight / 2
    half = _SIGMAS * sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))


def count_over(stats: VersionStats, limit_ms: float) -> float:
    """Answers that took longer than `limit_ms`, interpolated within the bucket that holds it."""
    over, lowest = 0.0, 0.0
    for highest, count in zip(LATENCY_EDGES_MS, stats.latency, strict=False):
        if limit_ms <= lowest:
            over += count
        elif limit_ms < highest:
            over += count * (highest - limit_ms) / (highest - lowest)
        lowest = float(highest)
    return over + stats.latency[-1]


def judge(plan: Plan, total: Window, windows: Sequence[Window], weight: float) -> Judgement:
    """Hold a step against its limits.

    Args:
        plan: its limits.
        total: what both versions did since the step began.
        windows: the same, cut into stretches, for what must last.
        weight: percent of the traffic that the canary gets.
    """
    found = (
        _judge_errors(plan, total),
        _judge_latency(plan, windows),
        _judge_device_time(plan, windows, weight),
    )
    return Judgement(
        broken=tuple(text for text, is_certain in found if text and is_certain),
        doubtful=tuple(text for text, is_certain in found if text and not is_certain),
    )


def _judge_errors(plan: Plan, total: Window) -> tuple[str, bool]:
    stable, canary = total.stable, total.canary
    allowed = plan.max_errors / 100
    here, there = _error_share(canary), _error_share(stable)
    if canary.errors < _ERRORS_MIN or here <= there + allowed:
        return "", False
    # Without requests of the stable version there is nothing to hold against it.
    upper = bounds(stable.errors, stable.total)[1] if stable.total else 0.0
    is_certain = bounds(canary.errors, canary.total)[0] > upper + allowed
    return (
        f"errors: {here:.1%} of {canary.total} requests (stable {there:.1%} of {stable.total}; "
        f"allowed are {plan.max_errors:g} points more)"
    ), is_certain


def _error_share(stats: VersionStats) -> float:
    return stats.errors / stats.total if stats.total else 0.0


def _judge_latency(plan: Plan, windows: Sequence[Window]) -> tuple[str, bool]:
    """The p99 of most windows is over the limit, and so are too many answers of all of them."""
    usable = _usable(windows, _WINDOW_REQUESTS_MIN, lambda stats: sum(stats.latency))
    if not usable:
        return "", False
    limits = [_p99_limit_ms(plan, window.stable) for window in usable]
    late = [count_over(w.canary, limit) for w, limit in zip(usable, limits, strict=True)]
    counts = [sum(window.canary.latency) for window in usable]
    shares = [over / count for over, count in zip(late, counts, strict=True)]
    if median(shares) <= _LATE_SHARE:
        return "", False
    is_certain = (
        len(usable) >= _WINDOWS_MIN
        and sum(late) >= _LATE_MIN
        and bounds(int(sum(late)), sum(counts))[0] > _LATE_SHARE
    )
    slow = median(window.canary.quantile_ms(0.99) or 0.0 for window in usable)
    return f"p99: {slow:.0f} ms (allowed are {median(limits):.0f} ms by the stable version)", (
        is_certain
    )


def _p99_limit_ms(plan: Plan, stable: VersionStats) -> float:
    return plan.max_p99_ratio * (stable.quantile_ms(0.99) or 0.0) + _P99_MARGIN_MS


def _judge_device_time(plan: Plan, windows: Sequence[Window], weight: float) -> tuple[str, bool]:
    usable = _usable(windows, _ROWS_MIN, lambda stats: stats.rows)
    ratios = [
        window.canary.device_ms_per_row / window.stable.device_ms_per_row
        for window in usable
        if window.stable.device_ms_per_row > 0
    ]
    if weight < 50 or not ratios or median(ratios) <= plan.max_device_time_ratio:
        return "", False
    return (
        f"device time of a row: {median(ratios):.1f} times that of the stable version "
        f"(allowed are {plan.max_device_time_ratio:g})"
    ), len(ratios) >= _WINDOWS_MIN


def _usable(
    windows: Sequence[Window], least: int, count: Callable[[VersionStats], int]
) -> list[Window]:
    """Neighbouring windows put together until both versions have `least` in each."""
    found: list[Window] = []
    stable, canary = VersionStats(), VersionStats()
    for window in windows:
        stable, canary = stable.plus(window.stable), canary.plus(window.canary)
        if min(count(stable), count(canary)) >= least:
            found.append(Window(stable=stable, canary=canary))
            stable, canary = VersionStats(), VersionStats()
    return found
