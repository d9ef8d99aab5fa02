"""Answers that are encoded together are those that each request would get alone."""

import numpy as np
import pytest
from support.device_lane import lane_of, open_request

from batchfleet.consumer.device.answering import encode_answer, encode_together
from batchfleet.models.model import Model
from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.signature import Signature, TensorSpec

DECLARED = (
    TensorSpec(name="score", datatype="FP32"),
    TensorSpec(name="vector", datatype="FP64", shape=(-1, 3)),
)


def lane_with(outputs=()):
    return lane_of(Model(), signature=Signature(outputs=outputs))


def complete(number, *outputs, accept=MSGPACK, wanted=()):
    return open_request(
        number, outputs, accept=accept, wanted=wanted, outputs=list(outputs), missing=0
    )


def row(score, vector=(1.0, 2.0, 3.0)):
    return {"score": np.array(score, np.float32), "vector": np.array(vector)}


@pytest.mark.parametrize("outputs", [(), DECLARED])
@pytest.mark.parametrize("wanted", [(), ("vector",)])
def test_together_is_as_alone(outputs, wanted):
    lane = lane_with(outputs)
    requests = [complete(at, row(at / 7, (at, 2.5, -at)), wanted=wanted) for at in range(5)]
    assert encode_together(lane, requests) == [encode_answer(lane, one) for one in requests]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(complete(2, row(1.0), accept=JSON), id="another encoding"),
        pytest.param(complete(2, row(1.0), wanted=("score",)), id="other outputs wanted"),
        pytest.param(complete(2, row(1.0), row(2.0)), id="two rows"),
        pytest.param(complete(2, row(1.0, (1.0, 2.0))), id="another shape"),
        pytest.param(complete(2, row(1.0, (1, 2, 3))), id="another type"),
        pytest.param(complete(2, row(1.0) | {"more": np.zeros(1)}), id="one output more"),
        pytest.param(complete(2, {"score": np.zeros((), np.float32)}), id="one output less"),
        pytest.param(complete(2, row(1.0) | {"vector": [1.0, 2.0, 3.0]}), id="no array"),
        pytest.param(complete(2, row(1.0) | {"vector": np.ma.zeros(3)}), id="masked"),
        pytest.param(complete(2, np.zeros(3)), id="no names"),
        pytest.param(complete(2, row(np.nan)), id="not finite"),
    ],
)
def test_one_that_differs_sends_all_their_own_way(odd):
    usual = complete(1, row(1.0))
    assert encode_together(lane_with(), [usual, odd]) is None
    assert encode_together(lane_with(), [odd, usual]) is None


@pytest.mark.parametrize("output", [{}, {"empty": np.zeros((0, 2))}, {"text": "a"}, 1.5])
def test_what_is_no_plain_array_goes_alone(output):
    assert encode_together(lane_with(), [complete(1, output), complete(2, output)]) is None
