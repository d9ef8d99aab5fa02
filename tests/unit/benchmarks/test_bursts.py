import pytest

from benchmarks.bursts import (
    Burst,
    Load,
    median_cpu_us_per_request,
    median_of,
    p50_ms,
    p99_ms,
    percentiles_ms,
    ratios,
    throughput_per_s,
)


def burst(duration_s=1.0, p50=1.0, **cpu_s):
    return Burst(requests=100, duration_s=duration_s, p50_ms=p50, p99_ms=9.0, cpu_s=cpu_s)


def test_throughput_and_cpu_are_per_second_and_per_request():
    one = burst(duration_s=0.5, server=0.02)
    assert one.throughput_per_s == 200
    assert one.cpu_us_per_request == {"server": pytest.approx(200)}


def test_ratios_compare_neighbours_and_not_medians():
    slowing = [burst(duration_s=seconds) for seconds in (1.0, 2.0, 4.0)]
    twice_as_slow = [burst(duration_s=seconds) for seconds in (2.0, 4.0, 8.0)]
    assert ratios(slowing, twice_as_slow, throughput_per_s) == [2, 2, 2]


def test_ratios_need_pairs():
    with pytest.raises(ValueError, match="no pair"):
        ratios([], [], p50_ms)
    with pytest.raises(ValueError, match="shorter"):
        ratios([burst(), burst()], [burst()], p50_ms)


def test_the_median_ignores_one_disturbed_burst():
    assert median_of([burst(p50=1.0), burst(p50=50.0), burst(p50=1.2)], p50_ms) == 1.2
    assert median_of([burst()], p99_ms) == 9
    with pytest.raises(ValueError, match="no burst"):
        median_of([], p50_ms)


def test_cpu_is_a_median_by_process():
    bursts = [burst(client=0.01, server=0.02), burst(client=0.03, server=0.02)]
    found = median_cpu_us_per_request(bursts)
    assert found == {"client": pytest.approx(200), "server": pytest.approx(200)}
    assert median_cpu_us_per_request([]) == {}


def test_percentiles_are_in_milliseconds():
    p50, p99 = percentiles_ms([at / 1000 for at in range(1, 102)])
    assert (p50, p99) == (pytest.approx(51), pytest.approx(100))
    with pytest.raises(ValueError, match="no request"):
        percentiles_ms([])


@pytest.mark.parametrize("load", [(0, 1), (1, 0)])
def test_a_load_asks_for_something(load):
    with pytest.raises(ValueError, match="at least"):
        Load(requests=load[0], callers=load[1])
