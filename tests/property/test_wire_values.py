"""A value means the same by every way in: JSON, msgpack, raw bytes, and Python's own.

Whatever a row is made of, the model sees the same bits, or every way refuses it by the same name.
"""

import base64
import json
from decimal import Decimal
from enum import IntEnum, StrEnum

import msgpack
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.wire_values import texts

from batchfleet.wire.codec import JSON, MSGPACK, decode_body, encode_body, plain_json
from batchfleet.wire.errors import RequestError
from batchfleet.wire.inputs import encode_inputs
from batchfleet.wire.signature import Signature, TensorSpec
from batchfleet.wire.tensors import DATATYPES, check_columns, decode_columns

torch = pytest.importorskip("torch")

NUMERIC = [*DATATYPES, "BF16"]


def signature_of(datatype, *, finite=True):
    return Signature(inputs=(TensorSpec(name="x", datatype=datatype, finite=finite),))


def seen(raw, content_type, signature):
    """The bits that a model sees, or the name of the error."""
    try:
        columns = decode_columns(decode_body(raw, content_type), signature)
        check_columns(columns, signature)
    except RequestError as error:
        return error.name
    column = columns["x"]
    return (column.dtype.str, column.shape, column.tobytes())


def by_json_list(values, datatype):
    body = [{"name": "x", "shape": [len(values)], "data": values}]
    if datatype:
        body[0]["datatype"] = datatype
    return json.dumps(body).encode(), JSON


def by_msgpack_list(values, datatype):
    body = [{"name": "x", "shape": [len(values)], "data": values}]
    if datatype:
        body[0]["datatype"] = datatype
    return msgpack.packb(body), MSGPACK


def by_python(values, content_type):
    body, _ = encode_inputs({"x": values}, content_type)
    return encode_body(body, content_type), content_type


def by_bytes(data, count, datatype, content_type):
    raw = data if content_type == MSGPACK else {"b64": base64.b64encode(data).decode()}
    body = [{"name": "x", "datatype": datatype, "shape": [count], "data": raw}]
    return encode_body(body, content_type), content_type


def python_seen(values, content_type, signature):
    try:
        return seen(*by_python(values, content_type), signature)
    except RequestError as error:
        return error.name


values_of_json = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-300, 300),
    st.floats(),
    st.floats(width=16),
    st.sampled_from([65504.0, 65519.9, 65520.0, 70000.0, 3.4e38, 3.39e38, 1e39, 1e300, 1.00001]),
    st.booleans(),
)


@pytest.mark.parametrize("datatype", NUMERIC)
@given(values=st.lists(values_of_json, min_size=1, max_size=4))
@example(values=[1.00001])
@example(values=[3.4e38])
@example(values=[70000.0])
@example(values=[1e300])
@example(values=[-1])
@example(values=[2])
@example(values=[1.5])
@example(values=[True])
@example(values=[True, 2])
@example(values=[1, 2.0])
@example(values=[2**63, -1])
@example(values=[2**64 - 1])
@example(values=[float("nan")])
def test_a_list_means_the_same_by_every_way_in(datatype, values):
    for signature in (signature_of(datatype), signature_of(datatype, finite=False)):
        outcomes = {
            "JSON": seen(*by_json_list(values, datatype), signature),
            "JSON without datatype": seen(*by_json_list(values, None), signature),
            "msgpack": seen(*by_msgpack_list(values, datatype), signature),
            "msgpack without datatype": seen(*by_msgpack_list(values, None), signature),
            "Python, JSON": python_seen(values, JSON, signature),
            "Python, msgpack": python_seen(values, MSGPACK, signature),
            "Python, numpy's among them": python_seen(
                [np.float64(v) if type(v) is float else v for v in values], MSGPACK, signature
            )
            if len(set(map(type, values))) > 1
            else None,
        }
        found = {one for one in outcomes.values() if one is not None}
        assert len(found) == 1, outcomes


def exact_bytes(values, datatype):
    """What a caller with a typed array of its own sends; None where it cannot hold the values."""
    if datatype == "BF16":
        rounded = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16)
        if not rounded.isfinite().all():
            return None
        return rounded.view(torch.int16).numpy().tobytes()
    array = np.array(values, DATATYPES[datatype])
    return array.tobytes() if np.isfinite(array).all() else None


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4))
@example(values=[1.0000100135803223])
@example(values=[3.3895313892515355e38])
@example(values=[3.3961775292304957e38])
@example(values=[1.00390625])
@example(values=[1.01171875])
@example(values=[1e-45])
def test_fractions_by_list_are_those_by_bytes(datatype, values):
    signature = signature_of(datatype)
    with np.errstate(over="ignore"):
        data = exact_bytes(values, datatype)
    by_list = seen(*by_msgpack_list(values, datatype), signature)
    if data is None:
        assert by_list == "bad_inputs"
        return
    for content_type in (JSON, MSGPACK):
        assert seen(*by_bytes(data, len(values), datatype, content_type), signature) == by_list
        if datatype != "BF16":  # for which Python has no arrays
            array = np.frombuffer(data, DATATYPES[datatype])
            assert python_seen(array, content_type, signature) == by_list


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=4), data=st.data())
def test_an_array_of_fp32_is_rounded_to_what_a_bf16_model_is_given(values, data):
    signature = signature_of("BF16", finite=data.draw(st.booleans()))
    array = np.array(values, np.float32)
    by_array = python_seen(array, MSGPACK, signature)
    assert by_array == seen(*by_bytes(array.tobytes(), len(array), "FP32", JSON), signature)
    if np.isfinite(array).all():
        assert by_array == seen(*by_json_list(array.tolist(), None), signature)


# What looks like an array, a number or a text, and would mean something else once it is there.


class Colour(IntEnum):
    RED = 3


class Unit(np.ndarray):
    """An array that knows more than its values, as one with a unit does."""


class Raising:
    def __array__(self, *_, **__):
        raise KeyError("never \x1b[31m mind")


def masked():
    return np.ma.masked_array([1.0, 2.0], mask=[False, True], fill_value=-9999)


REFUSED = {
    "masked": (masked(), "masked array.*filled"),
    "masked without a mask": (np.ma.masked_array([1.0]), "masked array"),
    "rows that are masked": ([masked(), masked()], "masked array"),
    "the masked value": ([1.0, np.ma.masked], "masked array"),
    "a subclass": (np.ones(2).view(Unit), "is an? Unit.*asarray"),
    "a record": (np.zeros(2, [("a", "f4"), ("b", "i4")]), "no datatype.*astype"),
    "objects": (np.array([1, "a"], object), "object.*tolist"),
    "objects that are texts": (np.array(["a", "b"], object), "object.*tolist"),
    "dates": (np.zeros(2, "M8[s]"), "datetime64"),
    "time spans": (np.zeros(2, "m8[s]"), "timedelta64"),
    "complex": (np.ones(2, complex), "complex128"),
    "complex numbers": ([1j], "complex"),
    "long double": (np.ones(2, np.longdouble), "no datatype"),
    "a long double": ([np.longdouble(1)], "no datatype|longdouble"),
    "long doubles among numbers": ([np.longdouble(1), 1.0], "longdouble|float128"),
    "a date among numbers": ([np.datetime64("2020-01-01"), 1], "date among numbers"),
    "no number": ([1.0, None], "NoneType|a float"),
    "Decimal": ([Decimal("0.1")], "a Decimal"),
    "a set": ({1, 2}, "a set"),
    "a generator": ((n for n in range(2)), "a generator"),
    "a map": ({"a": 1}, "a dict"),
    "a map in a list": ([{"a": 1}], "a dict"),
    "bytearray": (bytearray(b"ab"), "a bytearray"),
    "memoryview": (memoryview(b"ab"), "a memoryview"),
    "bytearrays": ([bytearray(b"ab")], "a bytearray"),
    "NaN": ([1.0, float("nan")], "NaN or infinity in a list; pass an array"),
    "infinity, nested": ([[1.0, 2.0], [float("inf"), 0.0]], "NaN or infinity"),
    "beyond 64 bits": ([2**64], "beyond 64 bits"),
    "beyond 64 bits, negative": ([[0, -(2**63) - 1]], "beyond 64 bits"),
    "arrays of two types": ([np.ones(2, "f4"), np.ones(2, "f8")], "different datatypes"),
    "arrays among numbers": ([np.ones(2), [1.0, 2.0]], "ragged"),
    "texts in lists": ([["a"], ["b"]], "one axis"),
    "texts in an array of two axes": (np.array([["a"]]), "one axis"),
    "numbers and texts": ([1, "a"], "not both"),
    "nine axes": ([[[[[[[[[1]]]]]]]]], "more than 8 axes"),
    "a number": (5, "no rows"),
    "a number of numpy": (np.float32(5), "no rows"),
    "no axis": (np.array(5), "no rows"),
    "what raises": (Raising(), "a Raising is not an array"),
    "a tensor with a gradient": (torch.ones(2, requires_grad=True), "detach"),
    "a bfloat16 tensor": (torch.ones(2, dtype=torch.bfloat16), "BFloat16"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "a Tensor is not an array"),
    "surrogates": (["a", "\ud800"], "surrogate"),
}


@pytest.mark.parametrize("column", REFUSED)
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_what_would_mean_something_else_is_refused_by_name(column, content_type):
    value, words = REFUSED[column]
    with pytest.raises(RequestError, match=words) as caught:
        encode_inputs({"x": value}, content_type)
    assert caught.value.name == "bad_inputs"
    assert caught.value.message.isprintable()
    assert "x" in caught.value.message


def test_a_list_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(RequestError, match="more than 8 axes"):
        encode_inputs({"x": endless})


def test_a_masked_array_is_refused_as_the_inputs_themselves():
    for inputs in (masked(), np.ma.masked_array(["a", "b"], mask=[True, False])):
        with pytest.raises(RequestError, match="masked array"):
            encode_inputs(inputs)


def test_rows_at_fault_are_named():
    with pytest.raises(RequestError) as caught:
        encode_inputs({"x": [[1.0, 2.0], [3.0, float("nan")]]})
    assert caught.value.rows == (1,)


BASE = np.arange(6, dtype="<f4").reshape(2, 3)
SAME = {
    "itself": BASE,
    "matrix": BASE.view(np.matrix),
    "big-endian": BASE.astype(">f4"),
    "of Fortran": np.asfortranarray(BASE),
    "a view with steps": np.repeat(BASE, 2, axis=1)[:, ::2],
    "reversed": BASE[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": np.frombuffer(BASE.tobytes(), "<f4").reshape(2, 3),
    "rows": list(BASE),
    "a tensor": torch.from_numpy(BASE.copy()),
    "rows of tensors": list(torch.from_numpy(BASE.copy())),
    "scalars": [list(row) for row in BASE],
    "a tuple of tuples of scalars": tuple(tuple(row) for row in BASE),
    "numbers": BASE.tolist(),
    "ranges": [range(3), range(3, 6)],
    "numbers of both kinds": [[0, np.float32(1), 2.0], [3, 4, np.int64(5)]],
}


@pytest.mark.parametrize("form", SAME)
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_what_means_the_same_is_the_same(form, content_type):
    signature = Signature(inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 3)),))
    assert python_seen(SAME[form], content_type, signature) == ("<f4", (2, 3), BASE.tobytes())


def test_names_for_numbers_are_numbers():
    assert encode_inputs({"x": [Colour.RED, 4]})[0][0]["data"] == [3, 4]


@given(st.lists(texts, min_size=1, max_size=4))
def test_texts_mean_the_same_however_they_are_held(given_texts):
    held = [given_texts, tuple(given_texts), [np.str_(text) for text in given_texts]]
    if not any("\0" in text for text in given_texts):  # which numpy cuts off
        held.append(np.array(given_texts))
    for one in held:
        body, _ = encode_inputs({"x": one})
        assert decode_columns(decode_body(encode_body(body, MSGPACK), MSGPACK))["x"] == given_texts


# Parameters: plain JSON, or refused by name.

PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1),
              st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(texts, PLAIN, max_size=4))
def test_plain_values_come_through_as_they_are(value):
    assert decode_body(encode_body(plain_json("it", value), JSON), JSON) == value


class Word(StrEnum):
    A = "a"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), -float("inf"), np.float32("nan"), np.array([1, np.inf]),
        2**64, Decimal(1), b"bytes", {1}, object, 1j, Word.A, Colour.RED, "\ud800",
        np.datetime64("2020-01-01"), np.longdouble(1), masked(), {1: "key"}, {"\udfff": 1},
        torch.ones(1), range(2),
    ],
    ids=repr,
)  # fmt: skip
def test_what_json_lacks_is_refused_wherever_it_stands(value):
    for held in ({"t": value}, {"t": {"u": [0, value]}}, {"t": (value,)}):
        with pytest.raises(ValueError, match="parameters"):
            plain_json("parameters", held)


def test_numbers_of_numpy_are_numbers():
    value = {"a": np.float32(0.5), "b": np.arange(2), "c": np.bool_(True), "d": np.str_("x")}
    plain = plain_json("parameters", value)
    assert plain == {"a": 0.5, "b": [0, 1], "c": True, "d": "x"}
    assert [type(one) for one in plain.values()] == [float, list, bool, str]


def test_what_nests_too_deep_or_holds_itself_is_refused():
    endless: dict = {}
    endless["again"] = endless
    with pytest.raises(ValueError, match="nest deeper"):
        plain_json("parameters", endless)
