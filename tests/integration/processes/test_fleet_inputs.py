"""Everything that a request may hold, through a whole fleet and back, in both encodings."""

import base64
import json
import secrets

import msgpack
import numpy as np
import pytest
from support.fleet import check_all_ok, draft_of, shared_fleet

from batchfleet.producer.client import Client
from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.signature import Signature
from batchfleet.wire.tensors import DATATYPES, decode_columns

MIRROR = "mirror"
ROWS = 3
VALUES = {
    "BOOL": [True, False, True, True, False, False],
    "UINT8": [0, 1, 255, 7, 8, 9],
    "UINT16": [0, 1, 65535, 7, 8, 9],
    "UINT32": [0, 1, 4294967295, 7, 8, 9],
    "UINT64": [0, 1, 18446744073709551615, 7, 8, 9],
    "INT8": [-128, 1, 127, 7, 8, 9],
    "INT16": [-32768, 1, 32767, 7, 8, 9],
    "INT32": [-2147483648, 1, 2147483647, 7, 8, 9],
    "INT64": [-9223372036854775808, 1, 9223372036854775807, 7, 8, 9],
    "FP16": [-65504.0, 0.5, 65504.0, 7, 8, 9],
    "FP32": [-3.4e38, 0.1, 3.4e38, 7, 8, 9],
    "FP64": [-1e308, 0.1, 1e-308, 7, 8, 9],
}


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    draft = draft_of("echo", MIRROR, parameters={"mirror": True}, signature=Signature())
    with shared_fleet(redis_server, tmp_path_factory.mktemp("fleet"), draft) as found:
        yield found


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def ask(fleet, body, content_type, **fields):
    raw = json.dumps(body).encode() if content_type == JSON else msgpack.packb(body)
    return fleet.ask(MIRROR, None, inputs=raw, content_type=content_type, **fields)


def mirrored(fleet, body, content_type, **fields):
    reply = ask(fleet, body, content_type, **fields)
    check_all_ok([reply])
    return decode_columns(reply.outputs)


def raw_data(array, content_type):
    raw = array.tobytes()
    return raw if content_type == MSGPACK else {"b64": base64.b64encode(raw).decode()}


def test_the_values_cover_every_datatype():
    assert set(VALUES) == set(DATATYPES)


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize("is_raw", [False, True], ids=["list", "bytes"])
def test_every_datatype_comes_back_as_it_was_sent(fleet, content_type, accept, is_raw):
    arrays = {
        name: np.array(values, DATATYPES[name]).reshape(ROWS, 2) for name, values in VALUES.items()
    }
    body = [
        tensor(name, name, [ROWS, 2], raw_data(array, content_type) if is_raw else VALUES[name])
        for name, array in arrays.items()
    ]
    found = mirrored(fleet, body, content_type, accept=accept)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_half_precision_of_the_other_kind_strings_and_bytes(fleet, content_type, accept):
    upper = np.array([0x3F80, 0xC000, 0x4040], "<u2")
    blobs = [b"\x00\xff", b"x", b"{}"]
    blob_data = (
        blobs
        if content_type == MSGPACK
        else [{"b64": base64.b64encode(blob).decode()} for blob in blobs]
    )
    body = [
        tensor("bf", "BF16", [ROWS], raw_data(upper, content_type)),
        tensor("name", "BYTES", [ROWS], ["a", "é", "\u0000"]),
        tensor("blob", "BYTES", [ROWS], blob_data),
        tensor("deep", "FP32", [ROWS, 2, 2], [[[1, 2], [3, 4]]] * ROWS),
    ]
    found = mirrored(fleet, body, content_type, accept=accept)
    assert found["bf"].tolist() == [1.0, -2.0, 3.0]
    assert found["name"] == ["a", "é", "\u0000"]
    assert found["blob"] == blobs
    assert found["deep"].shape == (ROWS, 2, 2)


def test_numbers_that_are_not_finite_are_no_output_unless_declared(fleet):
    body = [tensor("x", "FP32", [2], raw_data(np.array([1, np.nan], "<f4"), MSGPACK))]
    reply = ask(fleet, body, MSGPACK)
    assert (reply.error["name"], reply.error["rows"]) == ("bad_output", [1])


@pytest.mark.parametrize("accept", [JSON, MSGPACK])
def test_only_the_outputs_wanted_come_in_the_order_wanted(fleet, accept):
    body = [tensor("x", "FP32", [2], [1, 2]), tensor("y", "INT8", [2], [1, 2])]
    reply = ask(fleet, body, JSON, outputs="y,digest", accept=accept)
    assert [output["name"] for output in reply.outputs] == ["y", "digest"]
    refused = ask(fleet, body, JSON, outputs="y,z", accept=accept)
    assert refused.error["name"] == "bad_request"
    assert "'z'" in refused.error["message"]


@pytest.mark.parametrize(
    ("parameters", "error"),
    [("{}", None), ('{"k": [1, {"a": null}]}', None), ("[1]", "bad_request"), ("{", "bad_request")],
)
def test_parameters_are_a_json_object_whatever_the_content_type(fleet, parameters, error):
    body = [tensor("x", "FP32", [1], [1])]
    for content_type in (JSON, MSGPACK):
        reply = ask(fleet, body, content_type, parameters=parameters)
        assert (reply.error or {}).get("name") == error


def test_large_inputs_with_everything(fleet):
    inputs = {
        "picture": np.random.default_rng(0).random((ROWS, 100, 100), np.float32),
        "name": ["a" * 40_000, "b", "c"],
        "raw": [b"\xff" * 40_000, b"y", b"z"],
    }
    with Client(fleet.url, namespace=fleet.namespace, tenant="default") as client:
        for accept in (JSON, MSGPACK):
            result = client.infer(
                MIRROR,
                inputs,
                outputs=["raw", "picture", "name"],
                parameters={"k": 1},
                accept=accept,
                meta="mine",
            )
            assert list(result.outputs) == ["raw", "picture", "name"]
            np.testing.assert_array_equal(result.outputs["picture"], inputs["picture"])
            assert result.outputs["name"] == inputs["name"]
            assert result.outputs["raw"] == inputs["raw"]
            assert (result.meta, result.usage["rows"]) == ("mine", ROWS)


def batches(fleet, requests):
    """The batch of each request, all of which wait while the device is busy."""
    texts = {"text": "!sleep:300", "id": secrets.token_hex(8)}
    rest = [{"text": f"t{at}", **fields} for at, fields in enumerate(requests)]
    ids = fleet.submit_all(MIRROR, [texts, *rest])
    replies = fleet.replies(MIRROR, ids)
    check_all_ok(replies)
    return [reply.receipt["batch"] for reply in replies[1:]]


def test_rows_share_a_batch_with_rows_of_equal_parameters_whatever_outputs_they_want(fleet):
    alike = batches(fleet, [{"outputs": "text"}, {"outputs": "digest"}, {}])
    assert len(set(alike)) == 1
    one, other = '{"k":1}', '{"k":2}'
    found = batches(fleet, [{"parameters": one}, {"parameters": other}, {"parameters": one}])
    assert found[0] != found[1]
