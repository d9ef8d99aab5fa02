import pytest

from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.stats import (
    LATENCY_BUCKETS,
    LATENCY_EDGES_MS,
    VersionStats,
    counts_of,
    outcome_field,
    read_stats,
    stats_fields,
)


def latency(**counts):
    return tuple(counts.get(f"h{bucket}", 0) for bucket in range(LATENCY_BUCKETS))


def test_the_counts_of_each_version_are_read():
    raw = {
        "1:ok": b"5", "1:caller": b"1", "1:fleet": b"2", "1:model": b"3",
        "1:h0": b"4", "1:h15": b"1", "1:rows": b"40", "1:device_us": b"1500",
        "2.a-b_c:ok": b"7",
    }  # fmt: skip
    found = read_stats(raw)
    assert found == {
        "1": VersionStats(
            ok=5, caller=1, fleet=2, model=3, latency=latency(h0=4, h15=1), rows=40, device_ms=1.5
        ),
        "2.a-b_c": VersionStats(ok=7),
    }
    assert (found["1"].errors, found["1"].total) == (5, 11)
    assert found["1"].device_ms_per_row == 1.5 / 40
    assert found["2.a-b_c"].device_ms_per_row == 0


def test_what_no_script_wrote_counts_nothing():
    raw = {
        "1:ok": b"-5", "1:fleet": b"1e3", "1:model": b"", "1:rows": b"9" * 30, "ok": b"5",
        "1:novel": b"5", "1:h16": b"5",
    }  # fmt: skip
    assert read_stats(raw) == {"1": VersionStats()}
    assert read_stats({}) == {}


def test_the_fields_of_a_version_are_those_that_are_read():
    raw = dict.fromkeys(stats_fields("1"), b"3")
    found = read_stats(raw)["1"]
    assert found == VersionStats(
        ok=3, caller=3, fleet=3, model=3, latency=(3,) * LATENCY_BUCKETS, rows=3, device_ms=0.003
    )
    assert len(raw) == 4 + 16 + 2


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (None, "2:ok"),
        (ErrorKind.BAD_INPUTS, "2:caller"),
        (ErrorKind.NO_WORKER, "2:fleet"),
        (ErrorKind.DEADLINE_EXCEEDED, "2:fleet"),
        (ErrorKind.MODEL_ERROR, "2:model"),
        (ErrorKind.CANCELLED, ""),
    ],
)
def test_an_error_counts_for_whom_it_is_the_fault_of(error, field):
    assert outcome_field("2", error) == field


@pytest.mark.parametrize(
    ("latency_ms", "bucket"),
    [
        *((-5, 0), (0, 0), (1, 0), (1.9, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)),
        *((16, 4), (17, 5), (16_384, 14), (16_385, 15), (10**9, 15)),
    ],
)
def test_latency_counts_in_the_bucket_whose_edge_it_keeps(latency_ms, bucket):
    counts = dict(counts_of("2", latency_ms=latency_ms, rows=3, device_us=5))
    assert counts == {"2:ok": 1, f"2:h{bucket}": 1, "2:rows": 3, "2:device_us": 5}
    if bucket < LATENCY_BUCKETS - 1:
        assert int(latency_ms) <= LATENCY_EDGES_MS[bucket]
    assert bucket == 0 or latency_ms > LATENCY_EDGES_MS[bucket - 1]


def test_an_error_adds_what_it_cost_and_no_latency():
    error = ErrorKind.MODEL_ERROR
    counts = counts_of("2", error, latency_ms=5, rows=3, device_us=5)
    assert dict(counts) == {"2:model": 1, "2:rows": 3, "2:device_us": 5}
    assert dict(counts_of("2", ErrorKind.BAD_INPUTS, rows=3)) == {"2:caller": 1}, "it never ran"
    assert counts_of("2", ErrorKind.CANCELLED, rows=3, device_us=5) == []


def test_what_was_counted_in_between():
    earlier = VersionStats(ok=5, fleet=1, latency=latency(h2=5), rows=10, device_ms=5.0)
    later = VersionStats(
        ok=8, fleet=1, model=1, latency=latency(h2=6, h3=2), rows=13, device_ms=8.5
    )
    assert later.minus(earlier) == VersionStats(
        ok=3, model=1, latency=latency(h2=1, h3=2), rows=3, device_ms=3.5
    )
    assert later.minus(VersionStats()) == later
    assert later.minus(later) == VersionStats()


def test_counts_that_were_removed_in_between_begin_anew():
    earlier = VersionStats(ok=500, latency=latency(h2=500))
    later = VersionStats(ok=2, latency=latency(h3=2))
    assert later.minus(earlier) == later


def test_quantiles_lie_within_their_buckets():
    assert VersionStats(ok=1).quantile_ms(0.5) is None
    one = VersionStats(latency=latency(h4=1))  # more than 8 ms, at most 16
    assert (one.quantile_ms(0), one.quantile_ms(0.5), one.quantile_ms(1)) == (8, 12, 16)
    fast = VersionStats(latency=latency(h0=10))
    assert (fast.quantile_ms(0.5), fast.quantile_ms(1)) == (0.5, 1)
    slow = VersionStats(latency=latency(h15=1))
    assert slow.quantile_ms(1) == 2 * LATENCY_EDGES_MS[-1] == 32_768
    mixed = VersionStats(latency=latency(h1=98, h6=2))
    assert mixed.quantile_ms(0.98) == 2
    assert mixed.quantile_ms(0.99) == 48
    assert mixed.quantile_ms(0.5) == pytest.approx(1 + 50 / 98)


def test_a_quantile_grows_with_its_share():
    stats = VersionStats(latency=latency(h1=3, h2=50, h5=7, h9=1))
    found = [stats.quantile_ms(share / 100) for share in range(101)]
    assert found == sorted(found)
