"""The worker's decisions, without a device process, a server or a clock."""

import pytest
from support.core_bench import PLACE, POISON, Bench, answered, entry, prepared_item

from batchfleet.consumer.batching.state import Placement, TakenEntry
from batchfleet.consumer.link.protocol import (
    Answers,
    Done,
    Drop,
    Failure,
    Prepare,
    PreparedRows,
    PrepareRun,
    Ready,
    Run,
)
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import ErrorKind


def test_an_idle_device_gets_cheap_requests_in_one_message():
    bench = Bench(max_batch_size=2)
    bench.take(entry("a"), entry("b"), entry("c"))
    (run,) = bench.plan()
    assert isinstance(run, PrepareRun)
    assert [item.request for item in run.items] == [1, 2]
    ended = bench.done(run, answered(1, 2), prepared=[prepared_item(1, [1]), prepared_item(2, [3])])
    assert [one.held.entry.id for one in ended] == ["a", "b"]
    first = ended[0].held
    assert (first.batch_rows, first.padded_tokens, first.device_ms) == (2, 3, 1.0)


LARGE = b" " * 65_537


def test_nobody_waits_for_a_large_request_to_be_prepared():
    """X5: neither other lanes nor small requests of its own."""
    bench = Bench()
    other = bench.core.open_lane("other", VersionRecord(version="1"))
    bench.core.receive(Ready(other.number, [], "l" * 16, 0, 1.0, [], 0), 0)
    bench.take(entry("large", inputs=LARGE))
    (prepare,) = bench.plan()
    assert isinstance(prepare, Prepare)
    bench.core.take(other, [TakenEntry(PLACE, entry("small"))], 1.0, 0.0)
    (run,) = bench.plan(1.0)
    assert isinstance(run, PrepareRun)
    bench.take(entry("larger", inputs=LARGE), entry("small too"))
    small, large = bench.plan(2.0)
    assert [[item.request for item in message.items] for message in (small, large)] == [[4], [3]]
    assert {type(small), type(large)} == {Prepare}


def test_lengths_are_learnt_first_where_several_wait():
    bench = Bench(bytes_per_token=4.0)
    bench.take(entry("a"), entry("b"))
    (prepare,) = bench.plan()
    assert isinstance(prepare, Prepare)
    assert bench.prepared((1, [5]), (2, [6])) == []
    (run,) = bench.plan(1.0)
    assert isinstance(run, Run)
    assert sorted(run.rows) == [(1, 0), (2, 0)]


def test_rows_of_one_request_run_in_several_batches_and_end_once():
    bench = Bench(bytes_per_token=4.0, max_batch_size=4, max_padding=2)
    bench.take(entry("big", rows=6), entry("small"))
    bench.plan()
    bench.prepared((1, [9, 9, 9, 9, 9, 9]), (2, [9]))
    first = bench.plan(1.0)[0]
    assert len(first.rows) == 4
    assert first.rows == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert bench.done(first) == []
    second = bench.plan(2.0)[0]
    assert sorted(second.rows) == [(1, 4), (1, 5), (2, 0)]
    ended = bench.done(second, answered(1, 2))
    assert [one.held.entry.id for one in ended] == ["big", "small"]
    assert ended[0].held.padded_tokens == 54
    assert bench.core.requests.held == {}
    assert bench.lane.held_rows == 0


def test_room_is_two_batches_and_a_large_request_counts_for_half_a_batch():
    bench = Bench(max_batch_size=8)
    assert bench.core.room(bench.lane, 0.0) == 16
    bench.take(entry("a"), entry("big", rows=300))
    assert bench.core.room(bench.lane, 0.0) == 16 - 1 - 4


def test_what_the_server_would_not_take_counts_against_the_room_of_its_lane_alone():
    bench = Bench(max_batch_size=8)
    other = bench.core.open_lane("n", VersionRecord(version="1", limits=Limits(max_batch_size=8)))
    bench.core.receive(Ready(other.number, [], "", 0, 1.0, [], 0), 0)
    bench.take(entry("three", rows=3), entry("big", rows=300), entry("settled"))
    requests = bench.core.requests
    requests.give_up(list(requests.held.values()), ErrorKind.CANCELLED, "it is over")
    assert bench.core.room(bench.lane, 0.0) == 16, "the server was not asked yet"
    ended = list(requests.unsettled.values())
    requests.end_settling(ended, ended[:2])
    assert (bench.core.room(bench.lane, 0.0), bench.core.room(other, 0.0)) == (16 - 3 - 4, 16)
    requests.end_settling(ended[:2], [])
    assert bench.core.room(bench.lane, 0.0) == 16


def test_no_room_before_the_lane_is_ready_or_without_a_device():
    bench = Bench()
    bench.lane.ready = False
    assert bench.core.room(bench.lane, 0.0) == 0
    bench.lane.ready = True
    bench.core.device_up = False
    assert bench.core.room(bench.lane, 0.0) == 0


def test_requests_with_other_parameters_do_not_share_a_batch():
    bench = Bench()
    bench.take(entry("a", parameters=b"1"), entry("b", parameters=b"2"))
    (prepare,) = bench.plan()
    assert isinstance(prepare, Prepare)
    bench.prepared((1, [1]), (2, [1]))
    assert [bench.plan(1.0)[0].rows] == [[(1, 0)]]


def test_one_of_high_priority_overtakes_what_is_held_and_cannot_share_a_batch():
    """However cheap preprocessing is: what runs one by one runs in the batcher's order."""
    bench = Bench()
    bench.take(*(entry(f"r{at}", parameters=b"%d" % at) for at in range(5)))
    bench.plan()
    bench.prepared(*((number, [1]) for number in range(1, 6)))
    first = bench.plan(1.0)[0]
    assert bench.core.room(bench.lane, 0.0) > 0
    bench.take(entry("urgent"), now_ms=1.0, place=Placement(level=0, bucket=0))
    bench.plan(1.0)
    bench.prepared((6, [1]))
    bench.done(first, answered(1))
    assert bench.plan(2.0)[0].rows == [(6, 0)]


def test_a_batch_over_the_limits_comes_back_prepared_and_is_cut_then():
    bench = Bench(max_batch_size=4)
    bench.take(entry("liar"))
    (run,) = bench.plan()
    reply = Done(run.batch, [], 0.0, [prepared_item(1, [1] * 6)], [], [])
    bench.core.receive(reply, 1.0)
    assert bench.ended() == []
    (cut,) = bench.plan(1.0)
    assert isinstance(cut, Run)
    assert len(cut.rows) == 4


def test_what_came_while_one_ran_is_the_next_batch():
    bench = Bench(bytes_per_token=4.0, max_batch_size=8)
    bench.take(entry("runs"))
    (run,) = bench.plan()
    bench.take(*(entry(f"r{at}") for at in range(7)))
    (prepare,) = bench.plan()
    assert isinstance(prepare, Prepare)
    bench.prepared(*((number, [5]) for number in range(2, 9)))
    bench.done(run, answered(1), prepared=[prepared_item(1, [5])])
    (following,) = bench.plan()
    assert len(following.rows) == 7


def test_a_failed_request_ends_alone():
    bench = Bench()
    bench.take(entry("good"), entry("bad"))
    (run,) = bench.plan()
    failure = Failure(2, ErrorKind.MODEL_ERROR.code, "no", [0])
    prepared = [prepared_item(1, [1]), prepared_item(2, [1])]
    ended = bench.done(run, answered(1), [failure], prepared)
    by_id = {one.held.entry.id: one for one in ended}
    assert by_id["good"].answer is not None
    assert by_id["bad"].failure is failure


def test_answers_may_come_after_the_batch():
    bench = Bench()
    bench.take(entry("a"))
    (run,) = bench.plan()
    assert bench.done(run, prepared=[prepared_item(1, [1])]) == []
    bench.core.receive(Answers(answered(1), []), 3.0)
    assert [one.held.entry.id for one in bench.ended()] == ["a"]


def test_nothing_is_started_on_an_old_beat():
    bench = Bench()
    bench.take(entry("a"))
    bench.core.fresh_until_ms = 100.0
    assert bench.plan(101.0) == []
    assert len(bench.plan(99.0)) == 1


def test_after_a_lost_device_the_suspects_run_alone_and_only_the_culprit_fails():
    bench = Bench()
    bench.take(entry("a"), entry("b"), entry("c"))
    bench.plan()
    bench.take(entry("later"))
    assert not bench.core.lose_device(POISON, "segv")
    assert bench.ended() == []
    bench.core.device_up = True
    bench.lane.ready = True
    outcomes = {}
    for culprit in ("", "b", ""):
        (prepare,) = bench.plan()
        number = prepare.items[0].request
        name = bench.core.requests.held[number].entry.id
        assert len(prepare.items) == 1
        assert bench.plan() == []
        if name == culprit:
            assert bench.core.lose_device(POISON, "segv")
            ended = bench.ended()
            bench.core.device_up = True
            bench.lane.ready = True
        else:
            bench.prepared((number, [1]))
            (run,) = bench.plan()
            ended = bench.done(run, answered(number))
            assert ended[0].held.release == "alone"
        outcomes[name] = ended[0].failure and ended[0].failure.code
        assert ended[0].held.attempt == 2
    assert outcomes == {"a": None, "b": POISON.code, "c": None}
    (run,) = bench.plan()
    assert [item.request for item in run.items] == [4]


def test_what_waited_comes_before_the_suspects_where_versions_are_loaded_again():
    """Or it would wait for both ends of the process that a culprit costs."""
    bench = Bench()
    bench.take(entry("culprit"))
    bench.plan()
    bench.take(entry("waits"))
    bench.core.lose_device(POISON, "segv")
    bench.core.device_up = True
    bench.core.receive(Ready(bench.lane.number, [], "l" * 16, 0, 1.0, [], 0), 1000.0)
    (run,) = bench.plan(1000.0)
    assert [item.request for item in run.items] == [2]
    bench.done(run, answered(2), prepared=[prepared_item(2, [1])])
    assert bench.plan(1249.0) == []
    assert bench.core.look_again_ms == 1250.0
    (alone,) = bench.plan(1250.0)
    assert [item.request for item in alone.items] == [1]


def recovered(name, attempt, *, inside=True):
    return TakenEntry(PLACE, entry(name), attempt, inside)


def test_a_recovered_suspect_waits_until_the_device_process_is_empty():
    bench = Bench(bytes_per_token=4.0)
    bench.take(entry("runs"))
    (run,) = bench.plan()
    bench.core.take_over(bench.lane, [recovered("suspect", 2)], 0.0, 0.0)
    assert bench.ended() == []
    assert bench.plan() == []
    bench.done(run, answered(1), prepared=[prepared_item(1, [5])])
    (prepare,) = bench.plan()
    assert [item.request for item in prepare.items] == [2]


def test_a_request_that_ended_too_many_workers_is_given_up():
    bench = Bench(max_attempts=2)
    found = [recovered("culprit", 3), recovered("waited", 1, inside=False)]
    bench.core.take_over(bench.lane, found, 0.0, 0.0)
    (ended,) = bench.ended()
    assert (ended.held.entry.id, ended.failure.code) == ("culprit", POISON.code)
    assert [held.entry.id for held in bench.core.requests.held.values()] == ["waited"]


def test_what_was_prepared_before_suspects_came_is_run_before_them():
    """Nothing else would empty the device process, and all would wait for their deadlines."""
    bench = Bench(bytes_per_token=4.0, max_batch_size=1)
    bench.take(entry("first"), entry("second"))
    bench.plan()
    bench.prepared((1, [1]), (2, [1]))
    (first,) = bench.plan()
    lost = TakenEntry(PLACE, entry("suspect"), attempt=2, inside=True)
    bench.core.take_over(bench.lane, [lost], 1.0, 0.0)
    assert bench.ended() == []
    assert bench.plan() == []
    bench.done(first, answered(1))
    (second,) = bench.plan()
    assert second.rows == [(2, 0)]
    bench.done(second, answered(2))
    (prepare,) = bench.plan()
    assert [item.request for item in prepare.items] == [3]


def test_a_group_of_suspects_runs_as_one_batch_however_it_is_prepared():
    bench = Bench(bytes_per_token=4.0)
    lost = [TakenEntry(PLACE, entry(name), attempt=2, inside=True) for name in "abc"]
    bench.core.take_over(bench.lane, lost, 0.0, 0.0)
    (prepare,) = bench.plan()
    assert [item.request for item in prepare.items] == [1, 2, 3]
    bench.prepared((1, [1]), (2, [1]))
    assert bench.plan() == []
    bench.prepared((3, [1]))
    (run,) = bench.plan()
    assert sorted(run.rows) == [(1, 0), (2, 0), (3, 0)]


def test_a_late_request_is_given_up_unless_it_is_on_the_device():
    bench = Bench(max_batch_size=1)
    bench.take(entry("runs", deadline_ms=50), entry("waits", deadline_ms=50))
    bench.plan()
    assert bench.core.expire(60.0) == []
    ended = bench.ended()
    assert [one.held.entry.id for one in ended] == ["waits"]
    assert ended[0].failure.code == ErrorKind.DEADLINE_EXCEEDED.code


def test_prepared_rows_of_a_late_request_are_dropped_in_the_device_too():
    bench = Bench(bytes_per_token=4.0, max_batch_size=1)
    bench.take(entry("a", deadline_ms=500), entry("b", deadline_ms=50))
    bench.plan()
    bench.prepared((1, [5]), (2, [5]))
    bench.core.running = None
    assert bench.core.expire(60.0) == [Drop([2])]
    assert [one.held.entry.id for one in bench.ended()] == ["b"]
    (run,) = bench.plan(61.0)
    assert run.rows == [(1, 0)]


@pytest.mark.parametrize(("after_ms", "stage"), [(900, None), (1100, "predict")])
def test_a_batch_that_overruns_its_limit_is_noticed(after_ms, stage):
    bench = Bench(bytes_per_token=4.0, predict_ms=1000, preprocess_ms=10_000)
    bench.take(entry("a"), entry("b"))
    bench.plan()
    bench.prepared((1, [5]), (2, [5]))
    bench.plan(0.0)
    overrun = bench.core.overrun(float(after_ms))
    assert overrun == (stage and (stage, bench.lane))


def test_preprocessing_that_makes_no_progress_is_noticed():
    bench = Bench(bytes_per_token=4.0, preprocess_ms=1000)
    bench.take(entry("a"), entry("b"))
    bench.plan(0.0)
    assert bench.core.overrun(900.0) is None
    assert bench.core.overrun(1100.0) == ("preprocess", bench.lane)


def test_lanes_share_the_device_by_cost():
    bench = Bench(max_batch_size=1)
    other = bench.core.open_lane("n", VersionRecord(version="1", limits=Limits(max_batch_size=1)))
    bench.core.receive(Ready(other.number, [], "", 0, 1.0, [], 0), 0)
    bench.take(*(entry(f"a{n}") for n in range(8)))
    bench.core.take(other, [TakenEntry(PLACE, entry(f"b{n}")) for n in range(8)], 0.0, 0.0)
    order = []
    for _ in range(9):
        run = next(m for m in bench.plan() if isinstance(m, PrepareRun))
        order.append(run.lane)
        number = run.items[0].request
        cost_ms = 8.0 if run.lane == bench.lane.number else 4.0
        prepared = [prepared_item(number, [1])]
        bench.core.receive(
            Done(run.batch, [(number, 0)], cost_ms, prepared, [], answered(number)), 1.0
        )
    assert order.count(other.number) == 2 * order.count(bench.lane.number)


def test_a_dropped_lane_forgets_what_it_held():
    bench = Bench()
    bench.take(entry("a"), entry("b"))
    bench.plan()
    assert len(bench.core.drop_lane(bench.lane)) == 2
    assert bench.core.requests.held == {}


def test_suspects_wait_until_no_version_is_being_loaded():
    bench = Bench()
    bench.take(entry("a"))
    bench.plan()
    other = bench.core.open_lane("bad", VersionRecord(version="1"))
    bench.core.lose_device(POISON, "segv")
    bench.core.device_up = True
    bench.lane.ready = True
    assert bench.plan() == []
    other.refusal = "it crashes"
    assert isinstance(bench.plan()[0], Prepare)


def test_what_never_arrived_in_the_device_process_is_no_culprit():
    bench = Bench()
    bench.take(entry("a"))
    bench.plan()
    for arrives in (False, False, True):
        assert not bench.core.lose_device(POISON, "segv")
        bench.core.device_up = True
        bench.lane.ready = True
        assert bench.ended() == []
        assert isinstance(bench.plan()[0], Prepare)
        if not arrives:
            bench.core.suspects.clear_blame()
    assert bench.core.lose_device(POISON, "segv")
    assert [one.failure.code for one in bench.ended()] == [POISON.code]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_run_teaches_what_a_large_batch_of_a_slow_model_costs_unless_it_broke(breaks):
    bench = Bench(max_batch_size=8)
    bench.core.receive(Ready(bench.lane.number, [(1, 4, 2_000.0)], "l" * 16, 0, 1.0, [], 0), 0)
    bench.take(*(entry(f"r{at}") for at in range(4)))
    (run,) = (message for message in bench.plan() if isinstance(message, PrepareRun))
    prepared = [prepared_item(item.request, [4]) for item in run.items]
    rows = [(item.request, 0) for item in run.items]
    failures = [Failure(1, POISON.code, "it broke at once", [])] if breaks else []
    bench.core.receive(Done(run.batch, rows, 2_000.0, prepared, failures, answered(2, 3, 4)), 2.0)
    assert bench.lane.cost.milliseconds(8, 4) == (14_600 if breaks else 8_300)


def test_rows_of_several_kinds_run_one_kind_after_the_other():
    bench = Bench(max_batch_size=8)
    bench.take(entry("a", rows=2), entry("b"), entry("c"))
    (run,) = bench.plan()
    kinds = {1: [7, 8], 2: [7], 3: [8]}
    items = [prepared_item(number, [1] * len(one), one) for number, one in kinds.items()]
    bench.core.receive(Done(run.batch, [], 0.0, items, [], []), 1.0)
    ran = []
    for ended in ([2], [1, 3]):
        (run,) = bench.plan(1.0)
        ran.append(sorted(run.rows))
        bench.done(run, answered(*ended))
    assert ran == [[(1, 0), (2, 0)], [(1, 1), (3, 0)]]
    assert not bench.core.requests.held


def test_who_starts_over_is_of_the_kind_that_the_next_process_tells():
    bench = Bench(bytes_per_token=4.0)
    bench.take(entry("a"), entry("b"))
    bench.plan()
    bench.core.receive(PreparedRows([prepared_item(1, [5], [3])], []), 1.0)
    bench.core.lose_device(POISON, "gone")
    assert [held.kinds for held in bench.core.requests.held.values()] == [(), ()]
