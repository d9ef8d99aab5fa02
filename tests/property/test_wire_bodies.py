"""What holds for every body of the contract, whatever its bytes."""

import json
from math import prod

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_values import (
    bodies,
    content_types,
    names,
    texts,
)

from batchfleet.wire.codec import CONTENT_TYPES, JSON, MSGPACK, decode_body, encode_body, join_map
from batchfleet.wire.errors import RequestError
from batchfleet.wire.inputs import encode_inputs
from batchfleet.wire.signature import Signature, TensorSpec
from batchfleet.wire.tensors import DATATYPES, check_columns, count_rows, decode_columns

# Tensors.


def arrays_of(datatype, shape):
    """Any bits at all: NaN with a payload, infinity and denormals are numbers like others."""
    dtype = DATATYPES[datatype]
    size = dtype.itemsize * prod(shape)
    if dtype.kind == "b":
        flat = st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)
    else:
        flat = st.binary(min_size=size, max_size=size).map(lambda raw: np.frombuffer(raw, dtype))
    return flat.map(lambda array: array.astype(dtype).reshape(shape))


@st.composite
def any_array(draw, rows):
    tail = draw(st.lists(st.integers(0, 3), max_size=2))
    return draw(arrays_of(draw(st.sampled_from(sorted(DATATYPES))), (rows, *tail)))


def columns_of(rows: int):
    strings = st.lists(texts, min_size=rows, max_size=rows)
    blobs = st.lists(st.binary(max_size=8), min_size=rows, max_size=rows)
    return st.dictionaries(
        names, st.one_of(any_array(rows), strings, blobs), min_size=1, max_size=3
    )


@given(st.integers(1, 4).flatmap(columns_of), content_types)
def test_inputs_survive_the_wire(columns, content_type):
    body, rows = encode_inputs(columns, content_type)
    decoded = decode_columns(decode_body(encode_body(body, content_type), content_type))
    assert list(decoded) == list(columns)
    assert count_rows(decoded) == rows
    for name, column in columns.items():
        found = decoded[name]
        if isinstance(column, np.ndarray):
            assert found.dtype == column.dtype
            assert found.shape == column.shape
            assert found.tobytes() == column.tobytes()
        else:
            assert found == column


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
@given(data=st.data())
@settings(max_examples=20)
def test_arrays_of_every_datatype_survive_the_wire(datatype, content_type, data):
    array = data.draw(arrays_of(datatype, (2, 3)))
    body, _ = encode_inputs({"x": array}, content_type)
    found = decode_columns(decode_body(encode_body(body, content_type), content_type))["x"]
    assert found.tobytes() == array.tobytes()
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert encode_inputs({"x": swapped}, MSGPACK) == encode_inputs({"x": array}, MSGPACK)


@given(st.lists(texts, min_size=1, max_size=5), content_types)
def test_texts_survive_the_wire(given_texts, content_type):
    body, rows = encode_inputs(given_texts, content_type)
    raw = encode_body(body, content_type)
    assert decode_columns(decode_body(raw, content_type)) == {"text": given_texts}
    assert rows == len(given_texts)


# Hostile bodies: whatever comes, it is read or refused with an error of the table.

tensor_like = st.fixed_dictionaries(
    {
        "name": st.one_of(names, bodies),
        "datatype": st.one_of(st.sampled_from([*DATATYPES, "BF16", "BYTES"]), bodies),
        "shape": st.one_of(st.lists(st.integers(-1, 4), max_size=4), bodies),
        "data": st.one_of(
            st.lists(st.one_of(st.integers(-300, 300), st.floats(), st.booleans()), max_size=6),
            st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=3),
            st.fixed_dictionaries({"b64": texts}),
            bodies,
        ),
    }
)
SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 2), lowest=0.0, highest=9.0),)
)


def check_read_or_refused(raw: bytes, content_type: str) -> None:
    try:
        columns = decode_columns(decode_body(raw, content_type))
        assert count_rows(columns) >= 1
        check_columns(columns, SIGNATURE)
    except RequestError as error:
        assert error.code in {101, 103}  # noqa: PT017 - being read is the other good end


@given(st.binary(max_size=200), content_types)
def test_any_bytes_are_read_or_refused(raw, content_type):
    check_read_or_refused(raw, content_type)


@given(
    st.one_of(bodies, st.lists(tensor_like, max_size=3), st.fixed_dictionaries({"text": bodies}))
)
@settings(max_examples=200)
def test_any_value_is_read_or_refused(body):
    check_read_or_refused(msgpack.packb(body), MSGPACK)
    check_read_or_refused(json.dumps(body).encode(), JSON)


@given(bodies)
def test_what_json_admits_is_what_the_standard_says(body):
    raw = json.dumps(body).encode()
    try:
        assert decode_body(raw, JSON) == json.loads(raw)
    except RequestError:
        assert b"NaN" in raw or b"Infinity" in raw


@given(st.dictionaries(texts, bodies, max_size=20), texts, bodies, content_types)
def test_joining_equals_encoding_as_a_whole(head, key, value, content_type):
    head.pop(key, None)
    whole = encode_body({**head, key: value}, content_type)
    assert join_map(head, key, encode_body(value, content_type), content_type) == whole


@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 17, 300])
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_joining_at_the_borders_of_map_headers(size, content_type):
    head = {f"k{at}": at for at in range(size)}
    whole = encode_body({**head, "outputs": [1]}, content_type)
    assert join_map(head, "outputs", encode_body([1], content_type), content_type) == whole
