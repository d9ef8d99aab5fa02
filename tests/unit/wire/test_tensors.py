import numpy as np
import pytest

from batchfleet.wire.codec import JSON, MSGPACK, decode_body, encode_body
from batchfleet.wire.errors import RequestError
from batchfleet.wire.inputs import encode_inputs
from batchfleet.wire.signature import Signature, TensorSpec
from batchfleet.wire.tensors import (
    check_columns,
    count_rows,
    datatype_of,
    decode_columns,
    encode_columns,
)


def tensor(datatype, shape, data):
    return [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("", None),
        (5, "inputs must be"),
        (None, "inputs must be"),
        ([], "empty list"),
        (["a", 5], "inputs must be"),
        ({}, "no tensor"),
        ("\ud800", "surrogate"),
        (["a", "\udfff"], "surrogate"),
        ({"x": ["a", "\udfff"]}, "surrogate"),
        ({"x": ["a", b"b"]}, "not both"),
        ({"x": ["a", 5]}, "not both"),
        ({"x": [[1, 2], [3]]}, "ragged"),
        ({"x": 5}, "no rows"),
        ({"x": []}, "no rows"),
        (np.float32(5), "inputs must be"),
        (np.array(5), "no rows"),
        (np.zeros((0, 3)), "no rows"),
        (np.array([1j]), "complex128"),
        (np.array([object()]), "object"),
        ({"x": [None]}, "NoneType"),
        ({"x": [2**70]}, "beyond 64 bits"),
        ({"a b": [1]}, "not a name"),
        ({"a\n": [1]}, "not a name"),
        ({5: [1]}, "not a name"),
        ({"a": [1], "b": [1, 2]}, "different numbers of rows"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_inputs_of_a_python_caller(inputs, words, content_type):
    if words is None:
        assert encode_inputs(inputs, content_type) == ({"text": [inputs]}, 1)
        return
    with pytest.raises(RequestError, match=words) as caught:
        encode_inputs(inputs, content_type)
    assert caught.value.name == "bad_inputs"


def test_one_array_is_named_input():
    body, rows = encode_inputs(np.zeros((2, 3), "f4"), MSGPACK)
    assert rows == 2
    assert [(t["name"], t["datatype"], t["shape"]) for t in body] == [("input", "FP32", [2, 3])]


def test_arrays_that_are_not_contiguous_are_sent_in_row_order():
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    sent = encode_columns({"x": array.T}, MSGPACK)
    assert decode_columns(sent)["x"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_arrays_without_a_name_on_the_wire_are_a_value_error():
    for array in (np.array(["a"]), np.array([1j]), np.zeros(1, "M8[s]"), np.zeros(1, "g")):
        with pytest.raises(ValueError, match="no datatype"):
            datatype_of(array.dtype)


def test_a_truth_value_among_numbers_is_refused_by_name():
    with pytest.raises(RequestError, match="a boolean"):
        decode_columns(tensor("INT64", [2], [1, True]))


def test_a_byte_of_bool_that_numpy_would_not_understand():
    with pytest.raises(RequestError, match="0 or 1"):
        decode_columns(tensor("BOOL", [1], b"\x02"))


def test_whole_numbers_at_both_ends_stay_exact():
    column = decode_columns(tensor("UINT64", [3], [0, 2**63, 2**64 - 1]))["x"]
    assert column.tolist() == [0, 2**63, 2**64 - 1]


def test_a_message_is_bounded_however_hostile_the_tensor():
    hostile = {"name": "x" * 100_000, "datatype": "y" * 100_000, "shape": [1], "data": [1]}
    for given in (
        hostile,
        {**hostile, "name": "x"},
        {**hostile, "name": "x", "datatype": [1] * 999},
    ):
        with pytest.raises(RequestError) as caught:
            decode_columns([given])
        assert len(caught.value.message) < 300


def test_the_signature_names_rows_at_fault_once_each():
    signature = Signature(inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),))
    column = np.array([[1, 2], [np.nan, np.inf], [3, 4], [0, np.nan]], "f4")
    with pytest.raises(RequestError) as caught:
        check_columns({"x": column}, signature)
    assert caught.value.rows == (1, 3)


def test_a_signature_without_inputs_admits_everything():
    check_columns({"anything": np.array([np.nan])}, Signature())


@pytest.mark.parametrize("columns", [{}, {"a": [1], "b": [1, 2]}])
def test_rows_that_cannot_be_counted(columns):
    with pytest.raises(RequestError):
        count_rows(columns)


FP32 = Signature(inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),))
INT64 = Signature(inputs=(TensorSpec(name="x", datatype="INT64", shape=(-1, 2)),))


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize("given", [[[1, 2]], [[1.5, 2.5]], [(1, 2.5)]])
def test_python_numbers_take_the_datatype_of_the_signature(content_type, given):
    body, rows = encode_inputs({"x": given}, content_type)
    columns = decode_columns(decode_body(encode_body(body, content_type), content_type), FP32)
    check_columns(columns, FP32)
    assert (columns["x"].tolist(), columns["x"].dtype, rows) == (
        [[*given[0]]], np.float32, 1
    )  # fmt: skip


def test_numbers_never_lose_a_fraction_and_an_array_keeps_its_own_datatype():
    body, _ = encode_inputs({"x": [[1.0, 2.0]]})
    with pytest.raises(RequestError, match="a fraction, not INT64"):
        decode_columns(body, INT64)
    for array in (np.array([[1.0, 2.0]]), [np.array([1.0, 2.0])], [[np.float64(1), np.float64(2)]]):
        body, _ = encode_inputs({"x": array})
        with pytest.raises(RequestError, match="must be FP32, not FP64"):
            check_columns(decode_columns(body, FP32), FP32)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [([1, 2], "i8"), ([1, 2.5], "f8"), ([True, False], "?"), ([[1], [2.0]], "f8")],
)
def test_without_a_signature_numbers_are_of_the_widest_type_of_their_kind(data, dtype):
    body, _ = encode_inputs({"x": data})
    assert "datatype" not in body[0]
    column = decode_columns(body)["x"]
    assert (column.tolist(), column.dtype) == (data, np.dtype(dtype))


def test_datatype_may_be_left_out_of_lists_alone():
    tensor = {"name": "x", "shape": [2], "data": ["a", "b"]}
    assert decode_columns([tensor])["x"] == ["a", "b"]
    with pytest.raises(RequestError, match="has no datatype"):
        decode_columns([{**tensor, "data": b"12"}])
    with pytest.raises(RequestError, match="strings"):
        decode_columns([{**tensor, "data": [1, "b"]}])


def test_arrays_of_texts_are_lists_of_texts():
    assert encode_inputs(np.array(["a", "bc"])) == ({"text": ["a", "bc"]}, 2)
    body, rows = encode_inputs({"x": np.array(["a", "bc"])})
    assert (body[0]["datatype"], body[0]["data"], rows) == ("BYTES", ["a", "bc"], 2)


def test_what_is_wrong_is_told_in_words_of_no_language():
    for item, words in ((5, "a whole number"), (None, "null"), ({}, "an object")):
        with pytest.raises(RequestError, match=f'"text" holds {words}'):
            decode_columns({"text": ["a", item]})
    with pytest.raises(RequestError, match=r'or of \{"b64"'):
        decode_columns(tensor("BYTES", [1], {"b64": "AA=="}))


def sized(*shape):
    return Signature(inputs=(TensorSpec(name="x", datatype="FP32", shape=shape),))


@pytest.mark.parametrize(
    ("signature", "shape", "fits"),
    [
        (Signature(), [2, 0], True),
        (sized(-1, -1), [2, 0], True),
        (sized(-1, 0), [2, 0], True),
        (sized(-1, 2), [2, 0], False),
        (sized(-1), [2, 0], False),
        (sized(-1, -1, 3), [1, 0, 3], True),
        (sized(-1, 3, -1), [1, 0, 3], False),
        (sized(-1, -1), [0, 2], False),
        (Signature(), [0], False),
    ],
)
@pytest.mark.parametrize("data", [[], b"", {"b64": ""}])
def test_a_size_of_nothing_is_a_size_and_no_rows_are_none(signature, shape, fits, data):
    def read():
        columns = decode_columns(tensor("FP32", shape, data), signature)
        check_columns(columns, signature)
        return columns

    if not fits:
        with pytest.raises(RequestError):
            read()
        return
    columns = read()
    assert count_rows(columns) == shape[0]
    assert columns["x"].shape == tuple(shape)
    (written,) = encode_columns(columns, MSGPACK)
    assert (written["shape"], written["data"]) == (shape, b"")
