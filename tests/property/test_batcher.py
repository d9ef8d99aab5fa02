"""Whatever waits: a batch is never empty, never breaks a limit, and nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from batchfleet.consumer.batching.batcher import WaitingRow, choose_batch
from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.wire.deployment import Limits

CURVE = CostCurve.from_points(
    [(n, length, 5 + 0.05 * n * length) for n in (1, 4, 16) for length in (8, 64, 256)]
)
rows = st.lists(
    st.builds(
        WaitingRow,
        request=st.integers(1, 10_000),
        row=st.integers(0, 3),
        length=st.integers(1, 300),
        key=st.sampled_from([None, b"a"]),
        level=st.integers(0, 2),
        rank_ms=st.integers(0, 1000).map(float),
        deadline_ms=st.integers(1000, 100_000).map(float),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda row: (row.request, row.row),
)
limits = st.builds(
    Limits,
    max_batch_size=st.integers(1, 32),
    max_batch_tokens=st.integers(1, 2000),
    max_padding=st.floats(1, 3),
)


@given(rows, limits, st.sampled_from([CURVE, CostCurve()]))
def test_every_batch_keeps_the_limits(waiting, limits, curve):
    batch = choose_batch(waiting, 1000.0, limits, curve)
    count = len(batch.rows)
    assert 1 <= count <= limits.max_batch_size
    assert len({(row.request, row.row) for row in batch.rows}) == count
    assert len({row.key for row in batch.rows}) == 1
    lengths = [row.length for row in batch.rows]
    if count > 1:
        assert max(lengths) * count <= limits.max_batch_tokens
        assert max(lengths) * count <= limits.max_padding * sum(lengths)


@given(rows, limits)
def test_repeated_cutting_serves_everybody(waiting, limits):
    left, batches = list(waiting), 0
    while left:
        batch = choose_batch(left, 1000.0, limits, CURVE)
        left = [row for row in left if row not in batch.rows]
        batches += 1
    assert batches <= len(waiting)


@given(rows, limits)
def test_the_row_that_waited_longest_past_the_age_cap_is_in_the_batch(waiting, limits):
    now_ms = 10_000.0  # everybody has aged, and all deadlines are at least a second old or far
    far = [row._replace(deadline_ms=1e9) for row in waiting]
    oldest_ms = min(row.rank_ms for row in far)
    batch = choose_batch(far, now_ms, limits, CostCurve())
    assert any(row.rank_ms == oldest_ms for row in batch.rows)
