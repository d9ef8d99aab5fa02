"""What `make acceptance ONLY=engines` compares the batcher with."""

from itertools import permutations

import pytest
from acceptance.measuring.stub_ideal import StubCost, ideal_per_s
from acceptance.measuring.word_texts import stub_tokens, word_texts

STUB = StubCost(20.0, 0.02)


@pytest.mark.parametrize(("rows_max", "expected"), [(32, 563), (64, 628), (128, 639)])
def test_the_ideal_of_the_stub_is_what_was_simulated(rows_max, expected):
    lengths = [stub_tokens(text) for text in word_texts(4096)]
    assert round(ideal_per_s(lengths, STUB, rows_max)) == expected


def test_a_batch_of_one_costs_what_it_costs():
    assert ideal_per_s([50], STUB, 32) == pytest.approx(1000 / 21)
    assert ideal_per_s([50, 50], STUB, 1) == pytest.approx(1000 / 21)


def test_texts_beyond_those_in_flight_do_not_help():
    assert ideal_per_s([1, 1], STUB, 2, in_flight=1) < ideal_per_s([1, 1], STUB, 2)


def cuts_of(lengths, rows_max):
    """Every way to cut these texts, in this order, into batches."""
    if not lengths:
        yield []
    for size in range(1, min(rows_max, len(lengths)) + 1):
        for rest in cuts_of(lengths[size:], rows_max):
            yield [lengths[:size], *rest]


@pytest.mark.parametrize("rows_max", [1, 2, 4])
def test_no_other_cut_in_any_order_is_better(rows_max):
    cost, lengths = StubCost(2.0, 0.2), [3, 60, 5, 4, 70]
    best_ms = min(
        sum(cost.batch_ms(len(batch), max(batch)) for batch in cut)
        for order in permutations(lengths)
        for cut in cuts_of(list(order), rows_max)
    )
    assert ideal_per_s(lengths, cost, rows_max) == pytest.approx(len(lengths) / best_ms * 1000)
