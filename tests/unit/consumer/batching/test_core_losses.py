"""Whose code runs in the device process, for how long, and what becomes of it after a loss."""

from support.core_bench import POISON, Bench, answered, entry, prepared_item

from batchfleet.consumer.batching.core import Core
from batchfleet.consumer.link.protocol import Begun, Done, Prepare, PreparedRows, Refused
from batchfleet.wire.deployment import Limits, VersionRecord


def test_a_batch_is_timed_though_a_version_waits_behind_it_to_be_loaded():
    bench = Bench(predict_ms=1000, preprocess_ms=10)
    bench.take(entry("a"))
    bench.plan(0.0)
    other = bench.core.open_lane("n", VersionRecord(version="1"))
    bench.core.queue.add(other, 5.0)
    assert bench.core.overrun(1000.0) is None
    assert bench.core.overrun(1100.0) == ("predict", bench.lane)


def test_a_load_is_timed_from_its_begin_whatever_else_is_said_meanwhile():
    bench = Bench(bytes_per_token=4.0)
    other = bench.core.open_lane("n", VersionRecord(version="1", limits=Limits(load_ms=1000)))
    bench.core.queue.add(other, 500.0)
    bench.take(entry("a"))
    bench.plan()
    bench.core.receive(PreparedRows([prepared_item(1, [5])], []), 1400.0)
    assert bench.core.overrun(1450.0) is None
    assert bench.core.overrun(1550.0) == ("load", other)
    bench.core.drop_lane(other)  # undeployed, and still at it
    assert bench.core.overrun(1550.0) == ("load", other)


def test_a_device_process_that_does_not_come_up_is_noticed():
    core = Core()
    lane = core.open_lane("m", VersionRecord(version="1", limits=Limits(load_ms=1000)))
    core.device_up, core.progress_ms = True, 100.0
    assert core.overrun(30_000.0) is None  # a start is no part of the load
    assert core.overrun(30_200.0) == ("load", lane)
    lane.adjust(VersionRecord(version="1", limits=Limits(load_ms=60_000)))
    assert core.overrun(60_000.0) is None


def test_whose_code_runs_is_known():
    bench = Bench()
    bench.take(entry("a"))
    bench.plan(0.0)
    other = bench.core.open_lane("n", VersionRecord(version="1"))
    bench.core.queue.add(other, 5.0)
    assert bench.core.lanes_at_work() == [bench.lane]
    assert bench.core.queue.loading is None
    bench.core.receive(Done(1, [], 1.0, [], [], answered(1)), 6.0)
    assert bench.core.lanes_at_work() == [other]
    assert bench.core.queue.loading is other
    bench.core.receive(Refused(other.number, "it is of no use"), 7.0)
    assert bench.core.lanes_at_work() == []


def test_a_batch_that_runs_between_the_parts_of_a_load_is_timed_and_at_work():
    bench = Bench(predict_ms=1000, preprocess_ms=10)
    other = bench.core.open_lane("n", VersionRecord(version="1", limits=Limits(load_ms=5000)))
    bench.core.queue.add(other, 0.0)
    bench.take(entry("a"))
    bench.plan(0.0)
    assert bench.core.overrun(4900.0) is None
    bench.core.receive(Begun(1), 4900.0)
    assert bench.core.lanes_at_work() == [bench.lane]
    assert bench.core.queue.loading is None
    assert bench.core.overrun(5900.0) is None
    assert bench.core.overrun(5920.0) == ("predict", bench.lane)
    bench.core.receive(Done(1, [], 1.0, [], [], answered(1)), 5920.0)
    assert bench.core.queue.loading is other
    assert bench.core.overrun(10_900.0) is None
    assert bench.core.overrun(10_930.0) == ("load", other)


def test_what_waits_behind_a_load_is_not_at_work_and_what_is_prepared_beside_it_is():
    bench = Bench(bytes_per_token=4.0)
    other = bench.core.open_lane("n", VersionRecord(version="1"))
    bench.core.queue.add(other, 0.0)
    bench.take(entry("a"), entry("b"))
    bench.plan(0.0)
    assert bench.core.lanes_at_work() == [bench.lane, other]
    bench.prepared((1, [5]), (2, [5]))
    assert bench.core.lanes_at_work() == [other]
    bench.plan(1.0)
    assert bench.core.running
    assert bench.core.lanes_at_work() == [other]


def test_suspects_wait_until_a_version_that_is_leaving_has_left():
    bench = Bench()
    bench.take(entry("a"))
    bench.plan()
    other = bench.core.open_lane("bad", VersionRecord(version="1"))
    other.is_moving = True
    bench.core.lose_device(POISON, "segv")
    bench.core.device_up = bench.lane.ready = True
    assert bench.plan() == []
    bench.core.drop_lane(other)
    assert isinstance(bench.plan()[0], Prepare)


def test_a_lane_continues_elsewhere_with_what_it_held_and_who_is_suspected():
    bench, other = Bench(), Bench()
    bench.take(entry("inside"))
    bench.plan()
    bench.take(entry("waits"))
    bench.core.lose_device(POISON, "segv")
    moved = bench.core.move_lane_out(bench.lane)
    assert [(held.entry.id, is_suspect) for held, is_suspect in moved] == [
        ("inside", True),
        ("waits", False),
    ]
    assert bench.core.lanes == {}
    assert (bench.core.requests.held, bench.core.requests.input_bytes) == ({}, 0)
    other.core.move_lane_in(other.lane, moved)
    assert other.lane.held_rows == 2
    (alone,) = other.plan()
    assert [item.request for item in alone.items] == [1]
    assert [held.attempt for held in other.core.requests.held.values()] == [2, 1]
    other.prepared((1, [1]))
    (run,) = other.plan()
    other.done(run, answers=answered(1))
    assert [item.request for item in other.plan()[0].items] == [2]
