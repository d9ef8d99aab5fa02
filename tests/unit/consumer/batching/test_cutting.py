"""Where rows are cut into batches: the best cut there is, and full batches where others follow."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.consumer.batching.cutting import _BEHIND, CutCosts, _best_cut, cut_around
from batchfleet.wire.deployment import Limits

LIMITS = Limits(max_batch_size=8, max_batch_tokens=10_000, max_padding=1000)


def curve_of(batch_ms, token_ms):
    counts, lengths = (1, 4, 16), (1, 16, 64, 256)
    points = [(n, length, batch_ms + token_ms * n * length) for n in counts for length in lengths]
    return CostCurve.from_points(points)


def waited(costs, bounds, waiting):
    """What a cut costs all rows together."""
    return sum(
        costs.of_window(low, high) * (_BEHIND * waiting + high - low)
        for low, high in pairwise(bounds)
    )


@given(
    st.lists(st.integers(1, 256), min_size=1, max_size=9).map(sorted),
    st.sampled_from([(20.0, 0.02), (2.0, 0.3), (0.0, 0.1)]),
    st.sampled_from([LIMITS, Limits(max_batch_size=3, max_batch_tokens=300, max_padding=1.2)]),
)
def test_no_other_cut_makes_rows_wait_less(lengths, prices, limits):
    costs, rows = CutCosts.of(lengths, limits, curve_of(*prices)), len(lengths)
    cuts = [
        (0, *inner, rows)
        for count in range(rows)
        for inner in combinations(range(1, rows), count)
        if max(b - a for a, b in zip((0, *inner), (*inner, rows), strict=True))
        <= limits.max_batch_size
    ]
    found = waited(costs, _best_cut(costs, rows), rows)
    assert found == pytest.approx(min(waited(costs, cut, rows) for cut in cuts))


def test_a_batch_of_the_cut_is_filled_up_where_more_will_come():
    """Two even batches cost as much as a full one and the rest, and the rest will be filled up."""
    costs = CutCosts.of([16] * 12, LIMITS, curve_of(20.0, 0.02))
    assert _best_cut(costs, 12) == [0, 6, 12]
    assert cut_around(0, costs, 12) == (0, 8)


def test_rows_of_another_length_are_cut_off_where_their_padding_costs_more_than_a_batch():
    lengths = [8, 8, 8, 200, 200]
    cheap_batches = CutCosts.of(lengths, LIMITS, curve_of(1.0, 0.1))
    assert cut_around(0, cheap_batches, 5) == (0, 3)
    dear_batches = CutCosts.of(lengths, LIMITS, curve_of(500.0, 0.1))
    assert cut_around(0, dear_batches, 5) == (0, 5)


def test_the_reason_is_what_keeps_the_next_row_out():
    costs = CutCosts.of([16] * 12, LIMITS, curve_of(20.0, 0.02))
    assert costs.why(0, 8) == "full"
    assert costs.why(0, 3) == "knee"
    assert CutCosts.of([16, 16], LIMITS, curve_of(20.0, 0.02)).why(0, 2) == "idle"
    tight = CutCosts.of(
        [16, 16, 16], Limits(max_batch_size=8, max_batch_tokens=32), curve_of(20.0, 0.02)
    )
    assert tight.why(0, 2) == "tokens"
