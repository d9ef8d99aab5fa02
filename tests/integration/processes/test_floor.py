import pytest

from benchmarks.bursts import Burst, Load
from benchmarks.contest import interleave
from benchmarks.contestants import OURS, RAW, ours, raw_floor
from benchmarks.floor import Found, summary
from benchmarks.quiet import Calm


def bursts(seconds, p50):
    cpu_s = {"client": 0.5}
    return [
        Burst(requests=1000, duration_s=one, p50_ms=p50, p99_ms=9.0, cpu_s=cpu_s) for one in seconds
    ]


def test_the_summary_is_medians_of_pairs():
    found = Found(
        many={OURS: bursts([2.0, 4.0, 2.0], 1), RAW: bursts([1.0, 2.0, 1.5], 1)},
        single={OURS: bursts([1.0], 1.5), RAW: bursts([1.0], 1.0)},
    )
    line = summary(found, 64, Calm(is_quiet=True, busy_percent=3.0, waited_s=2))
    assert line["throughput_ratios"] == [0.5, 0.5, 0.75]
    assert line["noop_vs_floor"] == 0.5
    assert line["latency_vs_floor"] == 1.5
    assert line["cpu_vs_floor"] == 1.0
    assert line["ours_cpu_us"] == {"client": 500.0, "all": 500.0}
    assert line["busy_percent_before"] == 3.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contestant", "processes"),
    [
        (raw_floor, {"client", "router", "consumer", "server"}),
        (lambda: ours({"max_batch_size": 8}), {"client", "router", "consumer", "device", "server"}),
    ],
)
def test_a_contestant_answers_whole_bursts(contestant, processes):
    load = Load(requests=200, callers=16)
    with contestant() as system:
        (found,) = interleave([system], load, 2, lambda *_: None).values()
    assert [burst.requests for burst in found] == [200, 200]
    assert all(0 < burst.p50_ms <= burst.p99_ms for burst in found)
    assert all(set(burst.cpu_s) == processes for burst in found)
