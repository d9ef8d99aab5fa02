"""Two versions compared: chance rolls nothing back, and what is worse is found."""

import random

import pytest
from support.rolls import stats

from batchfleet.ops.rolls.judging import Window, bounds, count_over, judge
from batchfleet.ops.rolls.plan import Plan
from batchfleet.wire.stats import VersionStats

PLAN = Plan()


def test_bounds_hold_the_share_and_narrow_with_samples():
    for count, total in [(0, 1), (1, 1), (5, 10), (50, 100), (500, 1000)]:
        low, high = bounds(count, total)
        assert 0 <= low <= count / total <= high <= 1
    assert bounds(0, 0) == (0.0, 1.0)
    widths = [bounds(n // 2, n)[1] - bounds(n // 2, n)[0] for n in (10, 100, 1000)]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("limit_ms", [0.0, 0.5, 3.0, 4.0, 1000.0, 20_000.0, 1e9])
def test_what_is_over_a_limit_is_counted_within_its_bucket(limit_ms):
    latencies = [0.7, 3.0, 5.0, 700.0, 15_000.0, 40_000.0]
    found = count_over(stats(latencies), limit_ms)
    certain = sum(latency > 2 * limit_ms for latency in latencies)
    possible = sum(2 * latency >= limit_ms for latency in latencies)
    assert certain <= found + 1e-9
    assert found <= possible + 1  # the last bucket has no upper edge


class Bursty:
    """Requests of both versions through one queue: bursts and pauses meet them alike.

    `slow` multiplies what the canary costs; `hiccups` is how often, a second, its process alone
    stands still for half a second; `errors` is its share of failures.
    """

    def __init__(self, seed, weight, *, slow=1.0, hiccups=0.0, errors=0.0, base_errors=0.0):
        self.chance = random.Random(seed)
        self.weight, self.slow, self.hiccups = weight / 100, slow, hiccups
        self.errors, self.base_errors = errors, base_errors

    def window(self, seconds=3.0, rate=100.0):
        seen = {True: [], False: []}
        failed = {True: 0, False: 0}
        free_ms, now_ms, blocked_ms = 0.0, 0.0, -1.0
        while now_ms < 1000 * seconds:
            in_burst = int(now_ms / 500) % 6 == 0
            now_ms += self.chance.expovariate(rate * (4 if in_burst else 0.4) / 1000)
            is_canary = self.chance.random() < self.weight
            if self.chance.random() < self.hiccups / rate:
                blocked_ms = now_ms + 500
            cost_ms = self.chance.uniform(4, 10) * (self.slow if is_canary else 1)
            begin_ms = max(now_ms, free_ms, blocked_ms if is_canary else 0)
            if begin_ms == max(now_ms, free_ms):
                free_ms = begin_ms + cost_ms
            share = self.errors if is_canary else self.base_errors
            if self.chance.random() < share:
                failed[is_canary] += 1
            else:
                seen[is_canary].append((begin_ms + cost_ms - now_ms, cost_ms))
        return Window(
            stable=self.counts(seen, failed, False), canary=self.counts(seen, failed, True)
        )

    def counts(self, seen, failed, side):
        latencies = [latency for latency, _ in seen[side]]
        return stats(latencies, model=failed[side], device_ms=sum(cost for _, cost in seen[side]))


def looks(load, seconds, weight):
    """Judgements after each window, as a watcher takes them."""
    windows, stable, canary = [], VersionStats(), VersionStats()
    for _ in range(int(seconds / 3)):
        window = load.window()
        windows.append(window)
        stable, canary = stable.plus(window.stable), canary.plus(window.canary)
        yield judge(PLAN, Window(stable=stable, canary=canary), windows[-12:], weight)


@pytest.mark.parametrize("weight", [1, 10, 50, 99])
@pytest.mark.parametrize("seed", range(12))
def test_identical_versions_under_bursts_break_nothing(seed, weight):
    for found in looks(Bursty(seed, weight), 60, weight):
        assert not found.broken


@pytest.mark.parametrize("seed", range(12))
def test_one_moment_in_which_its_process_stands_still_breaks_nothing(seed):
    for found in looks(Bursty(seed, 50, hiccups=1 / 20), 60, 50):
        assert not found.broken


@pytest.mark.parametrize("seed", range(8))
def test_errors_that_both_have_break_nothing(seed):
    for found in looks(Bursty(seed, 10, errors=0.04, base_errors=0.04), 60, 10):
        assert not found.broken


@pytest.mark.parametrize("seed", range(8))
def test_one_that_is_three_times_slower_is_found(seed):
    assert any(found.broken for found in looks(Bursty(seed, 50, slow=3.0), 60, 50))


@pytest.mark.parametrize("weight", [10, 50])
@pytest.mark.parametrize("seed", range(8))
def test_errors_on_five_percent_are_found_or_held(seed, weight):
    found = list(looks(Bursty(seed, weight, errors=0.05), 120, weight))
    assert any(one.broken for one in found) or found[-1].doubtful
