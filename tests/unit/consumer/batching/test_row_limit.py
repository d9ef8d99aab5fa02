"""How large a full batch gets where no limit says so."""

import pytest
from support.core_bench import Bench

from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.consumer.batching.row_limit import RowLimit
from batchfleet.consumer.link.protocol import Ready


def run(limit, gains, *, is_backlogged=True):
    sizes = []
    for gain in gains:
        limit = limit.after(gain, is_backlogged=is_backlogged)
        sizes.append(limit.rows)
    return limit, sizes


def test_it_doubles_while_full_batches_gain_and_work_queues_up():
    _, sizes = run(RowLimit(), [1.5, 1.3, 1.1, 1.05, 1.05, 1.05])
    assert sizes == [64, 128, 256, 512, 1024, 1024]


def test_it_stays_where_a_worker_has_room():
    assert run(RowLimit(), [1.9], is_backlogged=False)[1] == [32]


def test_it_goes_back_where_runs_do_not_gain_and_does_not_try_again():
    limit, sizes = run(RowLimit(64), [1.01, 1.0, 1.02])
    assert sizes == [64, 64, 32]
    assert run(limit, [1.5, 1.5])[1] == [32, 32]


def test_one_run_that_stumbled_changes_nothing():
    _, sizes = run(RowLimit(64, most=64), [0.1, 1.5, 0.1, 0.1, 1.5])
    assert sizes == [64] * 5


def test_it_never_goes_below_where_it_began():
    assert run(RowLimit(), [0.5] * 4)[1] == [32] * 4


@pytest.mark.parametrize(("size", "rows"), [(0, 32), (8, 8), (4096, 4096)])
def test_a_limit_of_the_record_is_in_force_as_it_is(size, rows):
    lane = Bench(max_batch_size=size).lane
    assert lane.limits.max_batch_size == rows
    lane.is_backlogged = True
    lane.cost = CostCurve.from_points([(1, 1, 10.0), (32, 1, 11.0)])
    lane.learn(rows, 1, 11.0)
    assert lane.limits.max_batch_size == (64 if size == 0 else size)


def test_a_process_that_was_replaced_begins_anew():
    bench = Bench()
    bench.lane.row_limit = RowLimit(256)
    bench.lane.adjust(bench.lane.record)
    assert bench.lane.limits.max_batch_size == 256
    bench.lane.begin(Ready(1, [], "l" * 16, 0, 1.0, []))
    assert bench.lane.limits.max_batch_size == 32


def test_more_rows_are_held_where_large_batches_are_cheaper_and_queues_are_long():
    bench = Bench(max_batch_size=8)
    lane = bench.lane
    lane.is_backlogged = True
    assert bench.core.room(lane, 0.0) == 16, "nothing is known of the cost"
    lane.cost = CostCurve.from_points([(1, 1, 10.0), (8, 1, 11.0)])
    assert bench.core.room(lane, 0.0) == 32
    lane.cost = CostCurve.from_points([(1, 1, 10.0), (8, 1, 80.0)])
    assert bench.core.room(lane, 0.0) == 16
