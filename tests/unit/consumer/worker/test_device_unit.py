"""One device process after the other, and which versions get into which."""

from dataclasses import replace

import pytest
from support.worker_bench import HELLO, Bench, entry

from batchfleet.consumer.link.protocol import Load, Memory, Ready, Refused, Unload
from batchfleet.consumer.worker.unit_key import CULPRITS, OVERFLOW, UnitKey


@pytest.fixture
def bench():
    return Bench()


def test_versions_are_loaded_one_after_another_and_none_before_the_first_word(bench):
    one, two = bench.open("one"), bench.open("two")
    unit = bench.unit_of(one)
    assert bench.unit_of(two) is unit
    unit.step()
    assert unit.link.loads == []
    bench.step(unit, HELLO)
    assert unit.link.loads == [one.number]
    bench.step(unit, Refused(one.number, "it is of no use"))
    assert unit.link.loads == [one.number, two.number]
    bench.make_ready(unit, two)
    assert [event["model"] for event in bench.told("lane.refused")] == ["one"]
    assert [event["model"] for event in bench.told("lane.ready")] == ["two"]


def test_after_a_loss_what_served_comes_first_and_what_was_refused_not_at_all(bench):
    bad, new, good = bench.open("bad"), bench.open("new"), bench.open("good")
    unit = bench.unit_of(good)
    bench.come_up(unit)
    bench.step(unit, Refused(bad.number, "it is of no use"))
    bench.step(unit, Refused(new.number, "not this time"))
    bench.make_ready(unit, good)
    new.refusal = ""
    bench.lose(unit)
    link = bench.come_up(unit)
    assert link.loads == [good.number]
    bench.make_ready(unit, good)
    assert link.loads == [good.number, new.number]


def test_a_version_whose_load_ends_the_process_is_refused_and_told_once(bench):
    good, bad = bench.open("good"), bench.open("bad")
    unit = bench.unit_of(good)
    bench.come_up(unit)
    bench.make_ready(unit, good)
    bench.lose(unit)
    assert "exit code 3" in bad.refusal
    for _ in range(2):
        link = bench.come_up(unit)
        assert link.loads == [good.number]
        bench.make_ready(unit, good)
        bench.lose(unit)
    assert len(bench.told("lane.refused")) == 1
    assert bench.unit_of(bench.open("bad")).key.version == "bad/1"


def test_a_version_whose_load_takes_too_long_is_refused_and_told_once(bench):
    lane = bench.open("slow", load_ms=1000)
    unit = bench.unit_of(lane)
    bench.come_up(unit)
    bench.watch.clock.advance(1500)
    bench.worker.watch_limits()
    unit.step()
    assert "load took longer than its limit" in lane.refusal
    assert len(bench.told("lane.refused")) == 1


def test_a_version_that_may_be_innocent_goes_into_a_process_of_its_own(bench):
    good, other = bench.open("good"), bench.open("other")
    unit = bench.unit_of(good)
    bench.come_up(unit)
    bench.make_ready(unit, good, other)
    bench.lose(unit)
    link = bench.come_up(unit)  # good is loaded again, as it was before
    assert link.loads == [good.number]
    bench.lose(unit)
    assert (good.refusal, good.is_moving, other.is_moving) == ("", True, False)
    assert bench.come_up(unit).loads == [other.number]
    moved = bench.worker.move_lane(good)
    own = bench.unit_of(moved)
    assert (own.key.version, moved.refusal) == ("good/1", "")
    assert bench.come_up(own).loads == [moved.number]
    bench.make_ready(own, moved)
    assert moved.ready
    assert not bench.told("lane.refused")


def test_those_share_a_process_for_whom_there_is_none_of_their_own():
    bench = Bench(device_processes=2)
    lanes = [bench.open(f"bad{at}") for at in range(4)]
    unit = bench.unit_of(lanes[0])
    assert {bench.unit_of(lane) for lane in lanes} == {unit}
    bench.come_up(unit)
    for _ in range(2):
        bench.lose(unit)
        bench.come_up(unit)
    # Two have ended the shared process while they were loaded: the others are tried apart.
    assert [bool(lane.refusal) for lane in lanes] == [True, True, False, False]
    moved = [bench.worker.move_lane(lane) for lane in lanes[2:]]
    late = bench.open("late")
    versions = [bench.unit_of(lane).key.version for lane in (*moved, late)]
    assert versions == ["bad2/1", "bad3/1", CULPRITS]


def test_a_process_of_ones_own_ends_with_its_version(bench):
    good, bad = bench.open("good"), bench.open("bad")
    unit = bench.unit_of(good)
    bench.come_up(unit)
    bench.make_ready(unit, good)
    bench.lose(unit)
    bench.worker.drop_lane(bad)
    again = bench.open("bad")
    own = bench.unit_of(again)
    bench.come_up(own)
    bench.lose(own)
    assert again.refusal
    bench.worker.drop_lane(again)
    assert own not in bench.worker.units
    assert own.step() is None


def test_a_load_that_nobody_waits_for_any_more_is_not_waited_for(bench):
    """It cannot be told to stop; what runs has its time to end."""
    good = bench.open("good")
    unit = bench.unit_of(good)
    bench.come_up(unit)
    bench.make_ready(unit, good)
    withdrawn = bench.open("withdrawn")
    own = bench.unit_of(withdrawn)
    link = bench.come_up(own)
    bench.worker.drop_lane(withdrawn)
    bench.step(own, HELLO)
    assert link.patience_s < 1
    bench.worker.stopping.set()
    serving = unit.link
    bench.step(unit, HELLO)
    assert serving.patience_s > 10


def test_a_version_that_comes_while_others_serve_has_a_process_of_its_own(bench):
    first, second = bench.open("first"), bench.open("second")
    shared = bench.unit_of(first)
    bench.come_up(shared)
    bench.make_ready(shared, first)
    hot = bench.open("hot")
    own = bench.unit_of(hot)
    assert bench.unit_of(second) is shared
    assert own.key.version == "hot/1"
    bench.come_up(own)
    bench.lose(own)
    assert "exit code 3" in hot.refusal
    assert (first.ready, shared.link is not None) == (True, True)
    assert bench.told("device.lost")[0]["suspects"] == 0


def test_a_shared_process_that_is_lost_and_comes_back_is_spared_a_first_load(bench):
    good = bench.open("good")
    shared = bench.unit_of(good)
    bench.come_up(shared)
    bench.make_ready(shared, good)
    bench.lose(shared)
    assert bench.unit_of(bench.open("hot")) is not shared


def test_versions_in_turn_leave_two_processes_at_most_and_one_in_the_end(bench):
    lane = bench.open("m0")
    bench.come_up(bench.unit_of(lane))
    bench.make_ready(bench.unit_of(lane), lane)
    keys = set()
    for at in range(1, 12):
        new = bench.open(f"m{at}")
        unit = bench.unit_of(new)
        bench.come_up(unit)
        bench.make_ready(unit, new)
        assert len(bench.worker.units) == 2
        before = bench.unit_of(lane)
        bench.worker.drop_lane(lane)
        assert bench.worker.units == [unit]
        assert before.step() is None
        keys.add(unit.key)
        lane = new
    assert UnitKey() in keys  # whose turn comes again


def test_where_the_processes_are_used_up_those_that_behave_share_another_one():
    bench = Bench(device_processes=2)
    lanes = []
    for at in range(5):
        lanes.append(bench.open(f"m{at}"))
        unit = bench.unit_of(lanes[-1])
        if unit.link is None:
            bench.come_up(unit)
        bench.make_ready(unit, lanes[-1])
    versions = [bench.unit_of(lane).key.version for lane in lanes]
    assert versions == ["", "m1/1", "m2/1", OVERFLOW, OVERFLOW]
    overflow = bench.unit_of(lanes[-1])
    bench.lose(overflow)
    bench.come_up(overflow)
    bench.lose(overflow)  # while m3 was loaded again: it goes apart
    assert [lane.is_moving for lane in lanes[3:]] == [True, False]
    assert bench.unit_of(bench.worker.move_lane(lanes[3])).key.version == CULPRITS


def test_no_version_is_blamed_where_the_process_does_not_come_up(bench):
    lane = bench.open("new")
    unit = bench.unit_of(lane)
    for refusal in ("", "", "its device process does not start: exit code 3"):
        unit.step()
        unit.link.dies()
        unit.step()
        assert lane.refusal == refusal
    assert len(bench.told("lane.refused")) == 1
    assert bench.unit_of(bench.open("new")) is unit


def test_a_version_whose_interpreter_is_gone_is_refused_and_the_worker_continues(bench):
    lane = bench.open("new")
    unit = bench.unit_of(lane)
    bench.failure = FileNotFoundError(2, "No such file or directory", "/envs/gone/bin/python")
    pauses = [unit.step() for _ in range(3)]
    assert pauses == sorted(pauses)
    assert min(pauses) > 0
    assert "/envs/gone" in lane.refusal
    bench.failure = None
    assert bench.come_up(unit).loads == []


def test_nobody_is_blamed_for_a_process_that_is_killed_since_the_worker_ends(bench):
    lane = bench.open("new")
    unit = bench.unit_of(lane)
    bench.come_up(unit)
    bench.worker.taking = False
    unit.kill("it did not stop within the grace period")
    unit.step()
    assert not lane.refusal


def test_a_lane_that_is_dropped_is_unloaded(bench):
    lane = bench.open("one")
    unit = bench.unit_of(lane)
    link = bench.come_up(unit)
    bench.worker.adjust_lane(lane, replace(lane.record, lineage="b" * 16))
    bench.worker.drop_lane(lane)
    assert link.sent[-1] == Unload(lane.number)


def full_bench():
    """Where the next version that comes shares a process with `bench.latest`."""
    bench = Bench(device_processes=1)
    for name in ("first", "own", "latest"):
        lane = bench.open(name)
        bench.come_up(bench.unit_of(lane))
        bench.make_ready(bench.unit_of(lane), lane)
    return bench, lane


def test_a_load_waits_for_a_quiet_moment_of_those_with_whom_it_shares_a_process():
    bench, latest = full_bench()
    unit = bench.unit_of(latest)
    unit.core.fresh_until_ms = 1e9
    unit.take(latest, [entry(1)])
    bench.open("next")
    for _ in range(3):
        bench.watch.clock.advance(3000)
        bench.step(unit, HELLO)
        assert len(unit.link.loads) == 1
    bench.watch.clock.advance(3000)  # put off for long enough
    bench.step(unit, HELLO)
    assert len(unit.link.loads) == 2


def test_after_a_loss_those_that_share_a_process_are_loaded_at_once():
    """What was inside waits for all of them: a quiet moment would never come."""
    bench, latest = full_bench()
    unit = bench.unit_of(latest)
    second = bench.open("second")
    bench.watch.clock.advance(500)
    bench.step(unit, HELLO)
    bench.make_ready(unit, second)
    unit.core.fresh_until_ms = 1e9
    unit.take(latest, [entry(1)])
    bench.lose(unit)
    new = bench.open("new")
    link = bench.come_up(unit)
    for lane in (latest, second):
        assert link.loads[-1] == lane.number
        bench.make_ready(unit, lane)
    assert link.loads == [latest.number, second.number, new.number]


def test_a_load_beside_others_is_told_of_them_and_how_long_its_batches_may_take():
    bench, latest = full_bench()
    unit = bench.unit_of(latest)
    bench.open("next")
    bench.watch.clock.advance(500)
    bench.step(unit, Memory(1, 0))
    first, load = [message for message in unit.link.sent if isinstance(message, Load)]
    assert (first.beside, first.slice_ms) == ("first/1, own/1", 0)
    assert (load.beside, load.slice_ms) == ("first/1, own/1, latest/1", 100)


def test_a_load_is_told_what_the_version_needed_last_time(bench):
    lane = bench.open("one")
    unit = bench.unit_of(lane)
    link = bench.come_up(unit)
    bench.step(unit, Ready(lane.number, [], "a" * 16, 5_000_000, 1.0, [], 0))
    bench.worker.drop_lane(lane)
    bench.open("one")
    bench.step(unit, Memory(1, 7_000_000))
    assert [m.memory_bytes for m in link.sent if isinstance(m, Load)] == [0, 5_000_000]
    assert bench.worker.free_bytes == 7_000_000
