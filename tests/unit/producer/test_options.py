import msgpack
import numpy as np
import pytest

from batchfleet.producer.options import Options, RequestIds, patience_s
from batchfleet.wire.errors import CallerError
from batchfleet.wire.request import parse_request


def sent(options, inputs="x"):
    """The request as a router reads it."""
    return parse_request(options.to_request("new-id", inputs).to_fields(), 1 << 20)


def test_nothing_said_sends_nothing_but_id_and_inputs():
    fields = Options().to_request("new-id", "x").to_fields()
    assert fields[::2] == [b"id", b"inputs", b"content_type"]
    assert msgpack.unpackb(fields[3]) == {"text": ["x"]}


def test_everything_said_is_sent():
    request = sent(
        Options(
            id="mine",
            version="2",
            parameters={"top_k": 3},
            outputs=["a", "b"],
            priority="high",
            timeout_ms=1500,
            result_ttl_ms=2000,
            length=12,
            truncate="end",
            meta="é",
            traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
            accept="application/json",
        ),
        ["x", "y"],
    )
    assert (request.id, request.version, request.outputs) == ("mine", "2", "a,b")
    assert (request.priority, request.timeout_ms, request.result_ttl_ms) == ("high", 1500, 2000)
    assert (request.length, request.rows, request.truncate) == (12, 2, "end")
    assert (request.parameters, request.meta) == (b'{"top_k":3}', "é")
    assert (request.content_type, request.accept) == ("application/msgpack", "application/json")
    assert request.traceparent is not None
    assert request.warnings == ()


@pytest.mark.parametrize("inputs", [7, [], [1, "a"], np.array([1j]), {"x": [[1], [1, 2]]}])
def test_inputs_that_have_no_wire_form_are_refused(inputs):
    with pytest.raises(CallerError, match="bad_inputs"):
        Options().to_request("new-id", inputs)


def test_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="priorty"):
        Options(priorty="high")


def test_callers_wait_longer_than_the_fleet():
    assert patience_s(1000) == 6.0
    assert patience_s(None) == 65.0
    assert Options(timeout_ms=1).patience_s > 5.0


def test_ids_of_a_client_start_alike_and_differ():
    ids = RequestIds()
    made = [ids.new() for _ in range(100)]
    assert len(set(made)) == 100
    assert {(len(one), one[:8]) for one in made} == {(32, made[0][:8])}
    assert RequestIds().new()[:8] != made[0][:8]
