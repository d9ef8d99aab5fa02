"""What the batching policy gives, in virtual time; docs/decisions/0015 has the figures in full."""

import random

import pytest
from support.batching_simulation import (
    BUCKETS,
    Simulation,
    accelerator_ms,
    cpu_ms,
    lognormal,
    poisson,
    short_or_long,
    steep_ms,
)

from batchfleet.consumer.batching import batcher
from batchfleet.wire.deployment import Limits

LIMITS = Limits(buckets=BUCKETS, max_length=256)
_CUT_OF = 256


def best_cut_per_s(lengths, cost_ms, rows_max):
    """Rows a second where every 256 in a row are cut into the best batches of like length."""
    total_ms = 0.0
    for at in range(0, len(lengths), _CUT_OF):
        part = sorted(lengths[at : at + _CUT_OF])
        least = [0.0]
        for end in range(1, len(part) + 1):
            starts = range(max(0, end - rows_max), end)
            least.append(min(least[s] + cost_ms(end - s, part[end - 1]) for s in starts))
        total_ms += least[-1]
    return 1000 * len(lengths) / total_ms


@pytest.mark.parametrize("cost_ms", [accelerator_ms, steep_ms])
def test_many_callers_come_close_to_the_best_cut(cost_ms):
    outcome = Simulation(cost_ms, limits=LIMITS).closed(256, 2500, lognormal)
    chance = random.Random(0)
    ideal = best_cut_per_s([lognormal(chance) for _ in range(2048)], cost_ms, 32)
    assert outcome.per_s >= 0.9 * ideal
    assert outcome.at(0.99) <= 3.2 * outcome.at(0.5)


def test_on_a_cpu_small_batches_lose_no_throughput():
    """Measured with the rule before: 99.7/s, p99 3.4 s, in batches of 6 rows."""
    outcome = Simulation(cpu_ms, limits=LIMITS).closed(256, 1500, lognormal)
    assert outcome.per_s >= 0.97 * 99.7
    assert outcome.at(0.99) <= 3551


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_a_cpu_few_callers_wait_hardly_longer_than_in_order_of_arrival(seed, monkeypatch):
    found = Simulation(cpu_ms, limits=LIMITS, seed=seed).closed(16, 1200, lognormal)
    monkeypatch.setattr(batcher, "_PATIENCE", 0)
    in_order = Simulation(cpu_ms, limits=LIMITS, seed=seed).closed(16, 1200, lognormal)
    assert found.at(0.99) <= 1.15 * in_order.at(0.99)
    assert found.per_s >= 0.97 * in_order.per_s


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize(("cost_ms", "per_s"), [(cpu_ms, 17.5), (steep_ms, 25.0)])
def test_short_rows_do_not_wait_behind_long_ones(cost_ms, per_s, seed):
    mixed = Simulation(cost_ms, limits=LIMITS).open(
        poisson(random.Random(seed), per_s, 60, short_or_long)
    )
    row_ms = cost_ms(1, 256)
    assert mixed.at(0.99, [8]) <= 30 + 2 * row_ms
    assert mixed.at(0.99, [256]) <= 12 * row_ms


def test_four_workers_share():
    one = Simulation(accelerator_ms, limits=LIMITS).closed(64, 1500, lognormal)
    four = Simulation(accelerator_ms, limits=LIMITS, workers=4).closed(256, 6000, lognormal)
    assert four.per_s >= 3.4 * one.per_s


def test_rows_of_equal_length_run_in_full_batches():
    outcome = Simulation(accelerator_ms, limits=LIMITS).closed(256, 3000, lambda _: 28)
    assert outcome.mean_batch >= 30


def test_a_single_caller_waits_for_nobody():
    outcome = Simulation(accelerator_ms, limits=LIMITS).closed(1, 50, lambda _: 35)
    assert outcome.at(0.99) <= accelerator_ms(1, 35) + 0.5


def test_a_queue_that_overflows_is_served_by_age():
    """At 1.3 times what the device can do, none waits much longer than the rest of its time."""
    arrivals = poisson(random.Random(5), 700.0, 5, lognormal)
    outcome = Simulation(accelerator_ms, limits=LIMITS).open(arrivals)
    longs = outcome.at(0.99, range(128, 257))
    assert longs <= 1.3 * outcome.at(0.99)
