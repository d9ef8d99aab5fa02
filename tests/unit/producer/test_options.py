import secrets
from dataclasses import fields

import numpy as np
import pytest

from batchfleet.producer.options import (
    NO_OPTIONS,
    OptionFields,
    Options,
    RequestIds,
    default_wait_s,
)
from batchfleet.wire.errors import CallerError
from batchfleet.wire.request import FIELDS, parse_request


def sent(options, rows=1):
    """The request as a router reads it."""
    return parse_request(options.to_request("new-id", b"inputs", rows).to_fields(), 1 << 20)


def test_nothing_said_sends_nothing_but_id_and_inputs():
    fields = NO_OPTIONS.to_request("new-id", b"inputs", 1).to_fields()
    assert fields[:4] == [b"id", b"new-id", b"inputs", b"inputs"]
    assert fields[4:] == [b"content_type", b"application/msgpack"]


def test_everything_said_is_sent():
    request = sent(
        Options(
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
        rows=2,
    )
    assert (request.id, request.version, request.outputs) == ("new-id", "2", "a,b")
    assert (request.priority, request.timeout_ms, request.result_ttl_ms) == ("high", 1500, 2000)
    assert (request.length, request.rows, request.truncate) == (12, 2, "end")
    assert (request.parameters, request.meta) == (b'{"top_k":3}', "é")
    assert (request.content_type, request.accept) == ("application/msgpack", "application/json")
    assert request.traceparent is not None
    assert request.warnings == ()


def test_a_client_takes_every_option_that_a_command_offers():
    offered = {field.name for field in FIELDS.values() if field.meaning}
    taken = {field.name for field in fields(Options)}
    assert offered <= taken == OptionFields.__annotations__.keys()


def test_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="priorty"):
        Options(priorty="high")


def test_callers_wait_longer_than_the_fleet():
    assert default_wait_s(1000) == 6.0
    assert default_wait_s(None) == 65.0
    assert Options(timeout_ms=1).wait_s > 5.0


def test_ids_of_a_client_start_alike_and_differ():
    ids = RequestIds()
    made = [ids.new() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {(len(one), one[:8]) for one in made} == {(32, made[0][:8])}
    assert RequestIds().new()[:8] != made[0][:8]


def test_chance_for_many_ids_is_drawn_at_once():
    drawn = []

    def token_hex(count):
        drawn.append(secrets.token_hex(count))
        return drawn[-1]

    ids = RequestIds(token_hex)
    endings = [ids.new()[8:] for _ in range(600)]
    assert len(drawn) <= 5
    assert all(len(ending) == 24 for ending in endings)
    assert all(any(ending in digits for digits in drawn[1:]) for ending in endings)


def test_an_option_that_there_is_not_gets_the_nearest_named():
    with pytest.raises(TypeError, match="no option 'timeout'; did you mean timeout_ms, in milli"):
        NO_OPTIONS.with_fields({"timeout": 5})
    with pytest.raises(TypeError, match="Options are: id, version"):
        NO_OPTIONS.with_fields({"zzz": 5})
    assert NO_OPTIONS.with_fields({}) is NO_OPTIONS
    assert NO_OPTIONS.with_fields({"timeout_ms": 5}).timeout_ms == 5


def test_one_output_may_be_named_by_itself():
    assert sent(NO_OPTIONS.with_fields({"outputs": "words"})).outputs == "words"


def test_parameters_may_hold_numbers_of_numpy_and_nothing_that_json_lacks():
    parameters = {"a": np.float32(1.5), "b": np.arange(2)}
    assert sent(Options(parameters=parameters)).parameters == b'{"a":1.5,"b":[0,1]}'
    with pytest.raises(CallerError, match=r"bad_request.*parameters cannot be written"):
        sent(Options(parameters={"a": object()}))
