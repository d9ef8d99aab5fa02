"""The cost curve between, before and beyond its measured points."""

import numpy as np
import pytest

from batchfleet.consumer.batching.batcher import WaitingRow, choose_batch
from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.wire.deployment import Limits

POINTS = [(1, 10, 2.0), (4, 10, 5.0), (1, 30, 6.0), (4, 30, 15.0)]


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (1, 10, 2.0),
        (4, 30, 15.0),
        (2, 10, 3.0),
        (1, 20, 4.0),
        (1, 5, 2.0),
        (8, 10, 9.0),
        (1, 60, 12.0),
    ],
)
def test_reads_between_the_points_and_goes_on_beyond_them(rows, length, expected):
    assert CostCurve.from_points(POINTS).milliseconds(rows, length) == pytest.approx(expected)


def test_order_of_measuring_does_not_matter():
    assert CostCurve.from_points(POINTS[::-1]) == CostCurve.from_points(POINTS)


def test_a_run_that_other_work_slowed_down_counts_for_no_more_than_a_larger_one():
    points = [(1, 10, 90.0), (2, 10, 4.0), (1, 30, 80.0), (2, 30, 7.0)]
    curve = CostCurve.from_points(points)
    assert [curve.milliseconds(1, length) for length in (10, 30)] == [4.0, 7.0]
    assert [curve.milliseconds(2, length) for length in (10, 30)] == [4.0, 7.0]


def test_an_empty_curve_knows_nothing_and_costs_nothing():
    curve = CostCurve.from_points([])
    assert not curve.known
    assert curve.milliseconds(8, 100) == 0.0


# What real runs teach.

SLOW_MS = 2_000.0
SLOW = CostCurve.from_points([(1, 16, SLOW_MS), (1, 64, SLOW_MS)])


def run_batches(curve, limits, cost_of, batches):
    """Run full queues of rows of length 40; returns the curve, and how large the batches were."""
    sizes = []
    for _ in range(batches):
        waiting = [row(at) for at in range(64)]
        batch = choose_batch(waiting, 0.0, limits, curve)
        sizes.append(len(batch.rows))
        curve = curve.after(len(batch.rows), 40, cost_of(len(batch.rows)))
    return curve, sizes


def row(number):
    return WaitingRow(
        request=number, row=0, length=40, key=b"", level=1, rank_ms=0.0, deadline_ms=60_000.0
    )


def test_a_slow_model_whose_batches_cost_as_much_as_one_row_gets_full_ones_soon():
    limits = Limits(max_batch_size=32, max_batch_tokens=4096)
    curve, sizes = run_batches(SLOW, limits, lambda _: SLOW_MS, 6)
    assert sizes[0] <= 5, "as far as is known, rows add up"
    assert sizes == sorted(sizes)
    assert sizes[-2:] == [32, 32]
    assert curve.milliseconds(1, 16) == SLOW_MS, "what was measured stands"


def test_a_slow_model_whose_rows_add_up_soon_runs_them_one_by_one():
    limits = Limits(max_batch_size=32, max_batch_tokens=4096)
    curve, sizes = run_batches(SLOW, limits, lambda rows: rows * SLOW_MS, 8)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] <= 2
    assert SLOW.growth < curve.growth <= 1.0


def test_one_run_that_stumbled_is_forgotten_after_a_few():
    limits = Limits(max_batch_size=32, max_batch_tokens=4096)
    curve, _ = run_batches(SLOW, limits, lambda _: SLOW_MS, 6)
    stumbled = curve.after(32, 40, 100 * SLOW_MS)
    assert 0.5 <= stumbled.growth <= 1.0, "bounded: rows never more than add up"
    _, sizes = run_batches(stumbled, limits, lambda _: SLOW_MS, 6)
    assert sizes[-1] == 32


def test_runs_correct_the_price_of_a_batch_that_warm_up_got_wrong():
    """Warm-up saw 30 ms a batch and 1 ms a row; it is 5 and 1.5."""
    curve = CostCurve.from_points([(n, 10, 30.0 + n) for n in (1, 2, 4, 8, 16)])
    for rows in [1, 4, 8, 16, 2, 12] * 40:
        curve = curve.after(rows, 10, 5.0 + 1.5 * rows)
    for rows in (2, 8, 16):
        assert curve.milliseconds(rows, 10) == pytest.approx(5.0 + 1.5 * rows, rel=0.25)
        estimates = curve.matrix(16, np.array([10.0]))
        assert estimates[0, rows - 1] == pytest.approx(curve.milliseconds(rows, 10))


def test_one_run_that_stumbled_hardly_changes_what_runs_say():
    curve = CostCurve.from_points(POINTS)
    for rows in [1, 2, 3, 4] * 50:
        curve = curve.after(rows, 20, curve.milliseconds(rows, 20))
    before_ms = curve.milliseconds(3, 20)
    assert curve.after(3, 20, 1_000_000.0).milliseconds(3, 20) <= 1.1 * before_ms


def test_runs_of_one_size_scale_all_estimates():
    curve = CostCurve.from_points([(4, 10, 8.0)])
    for _ in range(300):
        curve = curve.after(4, 10, 16.0)
    assert curve.milliseconds(4, 10) == pytest.approx(16.0, rel=0.05)


def test_an_empty_curve_learns_nothing():
    assert CostCurve().after(8, 10, 5.0) == CostCurve()
