"""When a refused caller is told to come again."""

from batchfleet.router.drain_rate import RETRY_AFTER_MS, DrainRate


def test_without_a_rate_it_is_a_second():
    assert DrainRate().after(100, 0, 0.0).retry_after_ms(100) == 1000


def test_the_rate_counts_what_ended_between_two_looks():
    pace = DrainRate().after(1000, 0, 0.0).after(900, 50, 1000.0)
    assert pace.per_ms == 0.15
    assert pace.retry_after_ms(6000) == 2000


def test_a_backlog_that_only_grows_has_no_rate():
    assert DrainRate().after(10, 0, 0.0).after(50, 40, 1000.0).per_ms == 0.0


def test_the_advice_stays_within_its_bounds():
    lowest, highest = RETRY_AFTER_MS
    assert DrainRate(per_ms=1000.0).retry_after_ms(10) == lowest
    assert DrainRate(per_ms=0.0001).retry_after_ms(10_000) == highest
