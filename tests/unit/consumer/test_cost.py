"""The cost curve between, before and beyond its measured points."""

import pytest

from batchfleet.consumer.cost import CostCurve

POINTS = [(1, 10, 2.0), (4, 10, 5.0), (1, 30, 6.0), (4, 30, 15.0)]


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (1, 10, 2.0),
        (4, 30, 15.0),
        (2, 10, 3.0),
        (1, 20, 4.0),
        (1, 5, 2.0),
        (8, 10, 10.0),
        (1, 60, 12.0),
    ],
)
def test_reads_between_the_points_and_in_proportion_beyond_them(rows, length, expected):
    assert CostCurve.from_points(POINTS).milliseconds(rows, length) == pytest.approx(expected)


def test_order_of_measuring_does_not_matter():
    assert CostCurve.from_points(POINTS[::-1]) == CostCurve.from_points(POINTS)


def test_an_empty_curve_knows_nothing_and_costs_nothing():
    curve = CostCurve.from_points([])
    assert not curve.known
    assert curve.milliseconds(8, 100) == 0.0
