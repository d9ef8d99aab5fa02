"""X5: each request in preprocessing has a clock of its own, whatever else makes progress."""

import pytest
from support.core_bench import POISON, Bench, entry, prepared_item

from batchfleet.consumer.link.protocol import PreparedRows, Ready
from batchfleet.wire.deployment import Limits, VersionRecord

LIMIT_MS = 1000


@pytest.fixture
def bench():
    return Bench(bytes_per_token=4.0, preprocess_ms=LIMIT_MS, predict_ms=60_000)


def at_url(name, **fields):
    return entry(name, **fields)._replace(inputs=b"", inputs_at="https://data.example/x")


def progress(bench, number, now_ms):
    bench.core.receive(PreparedRows([prepared_item(number, [5])], []), now_ms)


def test_one_that_is_slow_is_noticed_while_others_are_prepared(bench):
    """X5: neighbours that are answered all the time kept its limit from being held."""
    bench.take(entry("slow"), entry("n"))
    bench.plan(0.0)
    progress(bench, 2, 10.0)
    for at in range(1, 6):
        bench.take(entry(f"n{at}"), now_ms=at * 300.0)
        bench.plan(at * 300.0)
        progress(bench, at + 2, at * 300.0 + 50)
        expected = ("preprocess", bench.lane) if at * 300 > LIMIT_MS else None
        assert bench.core.overrun(at * 300.0 + 60) == expected


def test_one_that_is_slow_is_noticed_while_a_batch_of_others_runs(bench):
    """X5."""
    bench.take(entry("slow"), entry("quick"))
    bench.plan(0.0)
    progress(bench, 2, 10.0)
    assert bench.plan(10.0)
    assert bench.core.running is not None
    assert bench.core.overrun(LIMIT_MS - 1.0) is None
    assert bench.core.overrun(LIMIT_MS + 1.0) == ("preprocess", bench.lane)


def test_one_that_waits_for_others_has_their_time_as_well(bench):
    """X5: each takes as long as it may, and none is blamed for those before it."""
    bench.take(*(entry(name) for name in "abc"))
    bench.plan(0.0)
    progress(bench, 1, 990.0)
    progress(bench, 2, 1980.0)
    assert bench.core.overrun(2970.0) is None
    assert bench.core.overrun(3010.0) == ("preprocess", bench.lane)


def test_what_waited_behind_a_load_has_its_time_from_then_on(bench):
    """X5: a version that is loaded keeps the process busy."""
    bench.take(entry("a"), entry("b"))
    bench.plan(0.0)
    other = bench.core.open_lane("n", VersionRecord(version="1", limits=Limits()))
    bench.core.queue.add(other, 0.0)
    assert bench.core.overrun(5_000.0) is None
    bench.core.receive(Ready(other.number, [], "", 0, 1.0, [], 0), 5_000.0)
    assert bench.core.overrun(5_900.0) is None
    assert bench.core.overrun(6_100.0) == ("preprocess", bench.lane)


def test_what_is_fetched_first_has_time_for_both(bench):
    """X5, X6."""
    bench.take(at_url("a"))
    bench.plan(0.0)
    (held,) = bench.core.requests.held.values()
    assert held.prepare_by_ms == 2 * LIMIT_MS


def test_who_is_fetched_gives_the_others_no_time(bench):
    """X5, X6: they wait for the fetches of nobody."""
    bench.take(*(at_url(f"a{at}") for at in range(20)))
    bench.plan(0.0)
    bench.take(entry("slow"))
    bench.plan(0.0)
    progress(bench, 1, LIMIT_MS)
    assert bench.core.overrun(LIMIT_MS + 1.0) == ("preprocess", bench.lane)


def test_slow_fetches_leave_their_room_to_others():
    """X6: up to a bound, once they are slow; what is fetched quickly counts as anything does."""
    bench = Bench(max_batch_size=8)
    bench.take(*(at_url(f"a{at}", rows=8) for at in range(4)))
    room = [bench.core.room(bench.lane, now_ms) for now_ms in (0.0, 1000.0)]
    assert room == [0, 0], "they are not being fetched yet"
    bench.plan(0.0)
    assert [bench.core.room(bench.lane, now_ms) for now_ms in (100.0, 1000.0)] == [0, 16]
    bench.take(*(at_url(f"b{at}") for at in range(1100)), now_ms=1000.0)
    bench.plan(1000.0)
    assert bench.core.room(bench.lane, 2000.0) == 0
    bench.prepared((1, [5]))
    assert bench.lane.fetching == 1103


def test_what_is_lost_with_the_process_gets_a_new_clock(bench):
    """X5."""
    bench.take(entry("a"))
    bench.plan(0.0)
    bench.core.lose_device(POISON, "it is gone")
    (held,) = bench.core.requests.held.values()
    bench.core.device_up = True
    bench.lane.ready = True
    bench.plan(50_000.0)
    assert held.prepare_by_ms == 50_000 + LIMIT_MS
