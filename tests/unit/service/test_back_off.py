from random import Random

import pytest

from batchfleet.service.back_off import BackOff


def test_pauses_grow_to_a_bound():
    policy, chance = BackOff(first_s=0.1, longest_s=3.0), Random(1)
    delays = [policy.delay_s(failures, chance) for failures in range(1, 12)]
    for failures, delay in enumerate(delays, start=1):
        whole = min(0.1 * 2 ** (failures - 1), 3.0)
        assert whole / 2 <= delay <= whole


def test_the_ten_thousandth_failure_is_no_worse_than_the_tenth():
    assert BackOff().delay_s(10_000, Random(1)) <= 2.0


@pytest.mark.parametrize("failures", [1, 9])
def test_callers_do_not_move_in_step(failures):
    delays = {BackOff().delay_s(failures, Random(seed)) for seed in range(50)}
    assert len(delays) == 50
    assert max(delays) > 1.5 * min(delays)
