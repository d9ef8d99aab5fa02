"""A roll as a picture."""

from support.rolls import stats

from batchfleet.ops.rolls.picture import (
    SECONDS_SHOWN,
    Series,
    error_share,
    highest_of,
    p50_ms,
    rate,
    spark,
)
from batchfleet.wire.stats import VersionStats


def test_a_line_is_drawn_to_its_scale():
    assert spark([0.0, 5.0, 10.0, None, 20.0], 10.0) == "▁▅█ █"
    assert spark([0.0, 10.0], 10.0, is_ascii=True) == "_@"
    assert spark([0.0, 0.0], 0.0) == "▁▁"
    assert highest_of([None, 3.0], [7.0], []) == 7.0
    assert highest_of([], [None]) == 0.0


def test_each_second_is_what_was_done_within_it():
    series, done = Series(), VersionStats()
    for second in range(SECONDS_SHOWN + 5):
        series.add({"1": done}, ("1", "2"), 1000.0 * second)
        done = done.plus(stats([3.0] * 8, model=2))
    assert series.values("1", rate) == [10.0] * SECONDS_SHOWN
    assert series.values("1", error_share) == [20.0] * SECONDS_SHOWN
    assert all(2.0 < value <= 4.0 for value in series.values("1", p50_ms))
    assert series.values("2", rate) == [0.0] * SECONDS_SHOWN
    assert series.values("2", p50_ms) == [None] * SECONDS_SHOWN
    assert series.values("3", rate) == []
