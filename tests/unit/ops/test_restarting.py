"""When a program that died is started again."""

from batchfleet.ops.restarting import LONGEST_DELAY_MS, WELL_AFTER_MS, Series


def after(*ran_ms):
    series = Series()
    for ran in ran_ms:
        series = series.after_death(ran)
    return series


def test_the_first_start_is_at_once():
    assert Series().delay_ms == 0


def test_the_delay_doubles_with_each_death():
    assert [after(*[10] * deaths).delay_ms for deaths in (1, 2, 3, 4)] == [500, 1000, 2000, 4000]


def test_the_delay_has_a_limit():
    assert after(*[10] * 100).delay_ms == LONGEST_DELAY_MS


def test_a_program_that_ran_well_starts_a_new_series():
    assert after(10, 10, 10, WELL_AFTER_MS).deaths == 1
