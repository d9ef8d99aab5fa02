"""Which rows make the next batch."""

from batchfleet.consumer.batching.batcher import (
    ArrivalRate,
    Arrivals,
    WaitingRow,
    choose_batch,
    linger_ms,
    rows_left,
)
from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.wire.deployment import Limits

LIMITS = Limits(max_batch_size=8, max_batch_tokens=400, max_padding=1.25)
UNKNOWN = CostCurve()
FAR_MS = 1e9


def row(request, length, *, rank_ms=0.0, level=1, key=None, deadline_ms=FAR_MS):
    return WaitingRow(request, 0, length, key, level, rank_ms, deadline_ms)


def chosen(batch):
    return sorted(row.request for row in batch.rows)


def test_the_oldest_row_leads_and_the_nearest_in_length_follow():
    rows = [row(1, 100, rank_ms=5), row(2, 10, rank_ms=1), row(3, 11), row(4, 98, rank_ms=2)]
    batch = choose_batch(rows, 10, LIMITS, UNKNOWN)
    assert chosen(batch) == [2, 3]
    assert batch.release == "padding"


def test_never_more_rows_than_the_limit():
    rows = [row(number, 10) for number in range(20)]
    batch = choose_batch(rows, 10, LIMITS, UNKNOWN)
    assert len(batch.rows) == 8
    assert batch.release == "full"


def test_tokens_count_padding():
    batch = choose_batch([row(number, 100) for number in range(6)], 10, LIMITS, UNKNOWN)
    assert (len(batch.rows), batch.release) == (4, "tokens")


def test_tokens_that_are_only_padding_count_as_well():
    """Four rows hold 398 tokens, and the device would compute 404."""
    rows = [row(1, 101), *(row(number, 99) for number in (2, 3, 4))]
    batch = choose_batch(rows, 10, LIMITS, UNKNOWN)
    assert (len(batch.rows), batch.release) == (3, "tokens")


def test_a_row_over_the_token_limit_runs_alone():
    batch = choose_batch([row(1, 900), row(2, 900)], 10, LIMITS, UNKNOWN)
    assert chosen(batch) == [1]


def test_only_rows_with_the_same_key_share_a_batch():
    rows = [row(1, 10, key=b"a"), row(2, 10, key=b"b"), row(3, 10, key=b"a")]
    assert chosen(choose_batch(rows, 10, LIMITS, UNKNOWN)) == [1, 3]


def test_high_priority_goes_first_until_a_low_one_has_aged():
    rows = [row(1, 10, level=2, rank_ms=0), row(2, 90, level=0, rank_ms=100)]
    assert chosen(choose_batch(rows, 200, LIMITS, UNKNOWN)) == [2]
    assert chosen(choose_batch(rows, 600, LIMITS, UNKNOWN)) == [1]


def test_a_near_deadline_goes_before_an_older_row():
    rows = [row(1, 10, rank_ms=0), row(2, 90, rank_ms=50, deadline_ms=120)]
    assert chosen(choose_batch(rows, 60, LIMITS, UNKNOWN)) == [2]


def test_the_batch_ends_where_each_further_row_costs_more():
    flat_then_steep = CostCurve.from_points([(1, 10, 4.0), (4, 10, 4.0), (8, 10, 16.0)])
    batch = choose_batch([row(n, 10) for n in range(8)], 10, LIMITS, flat_then_steep)
    assert (len(batch.rows), batch.release) == (4, "knee")


def test_rows_that_gain_nothing_by_company_run_in_small_batches():
    linear = CostCurve.from_points([(1, 10, 4.0), (8, 10, 32.0)])
    batch = choose_batch([row(n, 10) for n in range(8)], 10, LIMITS, linear)
    assert len(batch.rows) <= 2
    assert batch.release == "knee"


def test_rows_of_a_quick_model_run_together_since_a_batch_costs_as_well():
    quick = CostCurve.from_points([(1, 10, 0.01), (8, 10, 0.08)])
    batch = choose_batch([row(n, 10) for n in range(8)], 10, LIMITS, quick)
    assert (len(batch.rows), batch.release) == (8, "idle")


def test_a_short_row_overtakes_a_long_one_of_about_its_age_and_no_older_one():
    curve = CostCurve.from_points([(1, 8, 4.0), (1, 256, 80.0)])
    younger_ms = 700
    rows = [row(1, 256), row(2, 8, rank_ms=younger_ms)]
    assert chosen(choose_batch(rows, younger_ms, LIMITS, curve)) == [2]
    later = [row(1, 256), row(2, 8, rank_ms=younger_ms + 100)]
    assert chosen(choose_batch(later, younger_ms + 100, LIMITS, curve)) == [1]


def test_a_long_row_is_overtaken_until_that_has_taken_half_of_its_own_run():
    curve = CostCurve.from_points([(1, 8, 15.0), (1, 256, 80.0)])
    rows = [row(1, 256), *(row(n, 8, rank_ms=n) for n in range(2, 12))]
    order = []
    while rows:
        batch = choose_batch(rows, 20, Limits(max_batch_size=1), curve).rows
        order += [one.request for one in batch]
        rows = rows_left(rows, batch, curve)
    assert order == [2, 3, 4, 1, *range(5, 12)]


def test_only_older_rows_are_overtaken():
    curve = CostCurve.from_points([(1, 10, 4.0)])
    older, same, younger = (row(n, 10, rank_ms=rank) for n, rank in ((1, 1), (2, 5), (3, 9)))
    batch = (row(4, 10, rank_ms=5), row(5, 10, rank_ms=7))
    left = rows_left([older, same, younger, *batch], batch, curve)
    ms = curve.milliseconds(2, 10)
    assert [(one.request, one.overtaken_ms) for one in left] == [(1, ms), (2, 0), (3, 0)]


def test_work_of_a_higher_priority_does_not_count_as_overtaking():
    curve = CostCurve.from_points([(1, 10, 4.0)])
    levels = [row(1, 10, level=2), row(2, 10, level=1), row(3, 10, level=0)]
    batch = (row(4, 10, rank_ms=5, level=1),)
    left = rows_left([*levels, *batch], batch, curve)
    assert [one.overtaken_ms for one in left] == [0, 4.0, 4.0]


def test_no_knee_where_bigger_is_better():
    flat = CostCurve.from_points([(1, 10, 4.0), (8, 10, 4.0)])
    batch = choose_batch([row(n, 10) for n in range(8)], 10, LIMITS, flat)
    assert (len(batch.rows), batch.release) == (8, "idle")


def test_estimated_time_bounds_a_batch():
    curve = CostCurve.from_points([(1, 10, 10.0), (8, 10, 40.0)])
    limits = Limits(max_batch_size=8, max_batch_ms=20)
    batch = choose_batch([row(n, 10) for n in range(8)], 10, limits, curve)
    assert batch.release == "time"
    assert curve.milliseconds(len(batch.rows), 10) <= 20


def test_an_idle_device_waits_only_where_company_is_expected():
    curve = CostCurve.from_points([(1, 10, 10.0), (8, 10, 12.0)])
    waiting = [row(1, 10, rank_ms=100)]
    lone, busy = Arrivals(0, ArrivalRate(0.001, 100)), Arrivals(0, ArrivalRate(1.0, 100))
    assert linger_ms(waiting, 100, LIMITS, curve, lone) == 0
    assert linger_ms(waiting, 100, LIMITS, curve, busy) == LIMITS.max_batch_delay_ms
    assert linger_ms(waiting, 100 + LIMITS.max_batch_delay_ms, LIMITS, curve, busy) == 0
    assert linger_ms(waiting, 100, LIMITS, UNKNOWN, busy) == 0


def test_an_idle_device_waits_for_requests_that_are_being_prepared():
    curve = CostCurve.from_points([(1, 10, 10.0), (8, 10, 12.0)])
    coming = Arrivals(5, ArrivalRate())
    assert linger_ms([row(1, 10, rank_ms=100)], 101, LIMITS, curve, coming) == 4.0
    assert linger_ms([row(1, 10, rank_ms=100)], 106, LIMITS, curve, coming) == 0.0


def test_the_arrival_rate_follows_the_arrivals():
    rate = ArrivalRate()
    for at_ms in range(0, 500, 10):
        rate = rate.after(5, float(at_ms))
    assert 0.4 < rate.per_ms < 0.6
