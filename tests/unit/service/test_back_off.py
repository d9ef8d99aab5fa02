from random import Random

import pytest

from batchfleet.service.back_off import HEALTHY_MS, BackOff, Restarts


def test_pauses_grow_to_a_bound():
    policy, chance = BackOff(first_s=0.1, longest_s=3.0), Random(1)
    delays = [policy.delay_s(failures, chance) for failures in range(1, 12)]
    for failures, delay in enumerate(delays, start=1):
        whole = min(0.1 * 2 ** (failures - 1), 3.0)
        assert whole / 2 <= delay <= whole


def restart_s(*ran_ms):
    restarts = Restarts(BackOff(first_s=0.5, longest_s=30.0))
    return [restarts.next_s(ran) for ran in ran_ms]


def test_the_pause_doubles_with_each_end_of_a_process_up_to_a_limit():
    pauses_s = restart_s(*[10] * 100)
    assert pauses_s[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses_s[-1] == 30.0


def test_a_process_that_ran_well_starts_a_new_series():
    assert restart_s(10, 10, 10, HEALTHY_MS) == [0.5, 1.0, 2.0, 0.5]


def test_the_ten_thousandth_failure_is_no_worse_than_the_tenth():
    assert BackOff().delay_s(10_000, Random(1)) <= 2.0


@pytest.mark.parametrize("failures", [1, 9])
def test_callers_do_not_move_in_step(failures):
    delays = {BackOff().delay_s(failures, Random(seed)) for seed in range(50)}
    assert len(delays) == 50
    assert max(delays) > 1.5 * min(delays)
