import math

import numpy as np
import pytest

from batchfleet.models.likeness import Likeness, likeness_of, worst


def alike(one, other, dtype=np.float32):
    return likeness_of({"x": np.array(one, dtype)}, {"x": np.array(other, dtype)})


def test_equal_answers_are_alike():
    assert alike([[1, 2], [3, 4]], [[1, 2], [3, 4]]) == Likeness()
    assert likeness_of({"t": ["a", "b"]}, {"t": ["a", "b"]}) == Likeness()
    assert likeness_of({}, {}) == Likeness()


def test_vectors_count_by_their_worst_row():
    found = alike([[1, 0], [1, 1]], [[1, 0], [1, 0]])
    assert found.difference == 1.0
    assert found.cosine == pytest.approx(math.sqrt(0.5))


def test_the_length_of_a_vector_is_seen_by_the_difference_alone():
    assert alike([[2, 0]], [[1, 0]]) == Likeness(1.0, 1.0)


def test_rows_of_more_axes_are_vectors():
    assert alike([[[1, 0], [0, 1]]], [[[1, 0], [0, 1]]]) == Likeness()
    assert alike([[[1, 0], [0, 1]]], [[[0, 1], [1, 0]]]).cosine == 0.0


def test_single_numbers_count_by_their_share():
    assert alike([1000.0], [999.0]).cosine == pytest.approx(0.999)
    assert alike([0.5], [0.499]).cosine == pytest.approx(0.999)
    assert alike([-1.0], [1.0]).cosine == pytest.approx(-1.0)


def test_whole_numbers_are_equal_or_not():
    assert alike([[7, 8]], [[7, 8]], np.int64) == Likeness()
    assert alike([[7, 8]], [[7, 9]], np.int64) == Likeness(1.0, 0.0)


def test_zeros_are_like_zeros_alone():
    assert alike([[0, 0]], [[0, 0]]) == Likeness()
    assert alike([[0, 0]], [[1, 0]]).cosine == 0.0


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"x": np.zeros((1, 2))}, {"y": np.zeros((1, 2))}),
        ({"x": np.zeros((1, 2))}, {"x": np.zeros((2, 2))}),
        ({"x": np.full((1, 2), np.nan)}, {"x": np.zeros((1, 2))}),
        ({"x": ["a"]}, {"x": ["b"]}),
        ({"x": ["a"]}, {"x": np.zeros(1)}),
    ],
)
def test_nothing_is_like_another_kind_of_answer(columns, expected):
    found = likeness_of(columns, expected)
    assert found.difference == math.inf
    assert found.cosine == 0.0


def test_the_worst_of_all_counts():
    found = worst([Likeness(0.1, 0.9), Likeness(0.2, 0.99), Likeness()])
    assert found == Likeness(0.2, 0.9)
    assert worst([]) == Likeness()


def test_it_reads_as_a_sentence():
    assert str(Likeness(2.5e-7, 0.99999)) == "largest difference 2.5e-07, least cosine 0.999990"
