import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.models.stacking import stack_rows


def rows_of(*lengths):
    return [{"ids": np.arange(1, length + 1)} for length in lengths]


def test_padding_on_the_right():
    stacked = stack_rows(rows_of(1, 3), [1, 3], "right", 9)
    assert stacked["ids"].tolist() == [[1, 9, 9], [1, 2, 3]]
    assert stacked["mask"].tolist() == [[True, False, False], [True, True, True]]


def test_padding_on_the_left():
    stacked = stack_rows(rows_of(1, 3), [1, 3], "left", 9)
    assert stacked["ids"].tolist() == [[9, 9, 1], [1, 2, 3]]
    assert stacked["mask"].tolist() == [[False, False, True], [True, True, True]]


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    side=st.sampled_from(["left", "right"]),
    tail=st.sampled_from([(), (2,), (2, 3)]),
)
def test_the_mask_gives_back_every_row(lengths, side, tail):
    rows = [
        {"x": np.random.default_rng(length).random((length, *tail)).astype(np.float32)}
        for length in lengths
    ]
    stacked = stack_rows(rows, lengths, side, -1)
    assert stacked["x"].shape == (len(lengths), max(lengths), *tail)
    assert stacked["x"].dtype == np.float32
    for at, row in enumerate(rows):
        assert np.array_equal(stacked["x"][at][stacked["mask"][at]], row["x"])
    assert (stacked["x"][~stacked["mask"]] == -1).all()


def test_arrays_of_one_shape_are_not_padded():
    rows = [{"ids": np.ones(length), "style": np.ones(4), "speed": 1.5} for length in (2, 3)]
    stacked = stack_rows(rows, [2, 3])
    assert stacked["style"].shape == (2, 4)
    assert stacked["speed"].tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("rows", "lengths", "side"),
    [
        ([], [], "right"),
        (rows_of(1), [1, 2], "right"),
        (rows_of(1), [1], "middle"),
        ([{"a": np.ones(1)}, {"b": np.ones(1)}], [1, 1], "right"),
        ([{"mask": np.ones(1)}], [1], "right"),
        (rows_of(2, 3), [2, 2], "right"),
        ([{"a": np.ones((1, 2))}, {"a": np.ones((2, 3))}], [1, 2], "right"),
    ],
)
def test_what_cannot_be_stacked_is_refused(rows, lengths, side):
    with pytest.raises(ValueError, match=r"."):
        stack_rows(rows, lengths, side)
