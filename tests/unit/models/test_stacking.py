import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.models.stacking import check_pad_value, check_padding, kind_of_row, stack_rows


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
        ([{"a": np.ones(1)}, {"a": np.ones(1, np.int64)}], [1, 1], "right"),
        ([{"a": np.ones(1, np.bool_)}, {"a": np.ones(2, np.int8)}], [1, 2], "right"),
        ([{"a": "text"}, {"a": 1.0}], [1, 1], "right"),
        ([np.ones(1)], [1], "right"),
        ([{"a": [[1], [1, 2]]}], [1], "right"),
    ],
)
def test_what_cannot_be_stacked_is_refused(rows, lengths, side):
    with pytest.raises(ValueError, match=r"."):
        stack_rows(rows, lengths, side)


def test_texts_of_any_width_are_stacked_and_padded_whole():
    rows = [{"tags": np.array(["a"])}, {"tags": np.array(["longer", "b"])}]
    assert stack_rows(rows, [1, 2])["tags"].tolist() == [["a", ""], ["longer", "b"]]


@pytest.mark.parametrize(
    ("value", "datatype", "fits"),
    [
        (-1, "u1", False),
        (-1, "i1", True),
        (256, "u1", False),
        (0.5, "i8", False),
        (2.0, "i8", True),
        (float("nan"), "i8", False),
        (float("nan"), "f4", True),
        (float("-inf"), "f2", True),
        (-1e9, "f2", False),
        (-1e9, "f4", True),
        (1e39, "f4", False),
        (2**63, "i8", False),
        (2**63, "u8", True),
        (1, "?", True),
        (2, "?", False),
        (1, "U3", False),
        (0, "U3", True),
        (0, "?", True),
        (True, "f4", True),
    ],
)
def test_a_pad_value_must_fit_the_datatype_of_what_is_padded(value, datatype, fits):
    arrays = {"a": np.zeros(2, datatype), "fixed": np.zeros(3, "u1"), "one": np.zeros((), "?")}
    if fits:
        check_pad_value(arrays, 2, value)
    else:
        with pytest.raises(ValueError, match="'a'"):
            check_pad_value(arrays, 2, value)
        rows = [{"a": np.zeros(1, datatype)}, {"a": np.zeros(2, datatype)}]
        with pytest.raises(ValueError, match="does not fit"):
            stack_rows(rows, [1, 2], "right", value)


@pytest.mark.parametrize(
    ("side", "value"), [("middle", 0), (None, 0), ("left", None), ("left", "0"), ("left", [0])]
)
def test_a_side_that_is_none_and_a_value_that_is_no_number_are_refused(side, value):
    with pytest.raises(ValueError, match="pad_"):
        check_padding(side, value)


ROW = {"ids": np.zeros(3, "i8"), "style": np.zeros((2, 4), "f4"), "name": np.array("abc")}


@pytest.mark.parametrize(
    ("row", "length", "same"),
    [
        (ROW | {"ids": np.zeros(5, "i8")}, 5, True),
        (ROW | {"name": np.array("another")}, 3, True),
        (ROW | {"name": np.array(b"abc")}, 3, False),
        (ROW | {"ids": np.zeros(3, "i4")}, 3, False),
        (ROW | {"ids": np.zeros((3, 1), "i8")}, 3, False),
        (ROW | {"style": np.zeros((3, 4), "f4")}, 2, False),
        (ROW | {"style": np.zeros((2, 5), "f4")}, 3, False),
        (ROW | {"more": np.zeros(3)}, 3, False),
        ({"style": ROW["style"], "ids": ROW["ids"], "name": ROW["name"]}, 3, False),
    ],
)
def test_kinds_tell_apart_what_cannot_be_stacked(row, length, same):
    assert (kind_of_row(row, length) == kind_of_row(ROW, 3)) is same
