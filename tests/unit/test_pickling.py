"""Public values and errors cross processes: pickled, copied, or refused in one sentence."""

import copy
import importlib
import inspect
import pickle
import pkgutil
from pathlib import Path

import numpy as np
import pytest
import structlog

import batchfleet
from batchfleet import testing
from batchfleet.broker.errors import RefusedError
from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.models.engines import Engine
from batchfleet.models.model import LoadContext, Model, PredictContext, Prepared, Row
from batchfleet.producer.async_client import AsyncClient
from batchfleet.producer.client import Client
from batchfleet.producer.options import Options
from batchfleet.producer.result import Handle, Result
from batchfleet.producer.target import Target
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import (
    BatchfleetError,
    ErrorBody,
    ErrorKind,
    ErrorRow,
    Remedy,
    RequestError,
    Source,
)
from batchfleet.wire.reply import Envelope, Receipt, Reply, Usage
from batchfleet.wire.signature import Signature
from batchfleet.wire.states import State

_ENTRY_POINTS = "__main__"
_URL = "redis://127.0.0.1:1"

WAYS = {
    **{
        f"pickle {number}": lambda value, number=number: pickle.loads(  # noqa: S301 - our own
            pickle.dumps(value, number)
        )
        for number in range(2, 6)
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.fixture(params=WAYS, ids=str)
def crossed(request):
    """What comes out at the other end."""
    return WAYS[request.param]


def modules():
    for info in pkgutil.walk_packages(batchfleet.__path__, "batchfleet."):
        if not info.name.endswith(_ENTRY_POINTS):
            yield importlib.import_module(info.name)


def subclasses(kind):
    for one in kind.__subclasses__():
        if one.__module__.startswith("batchfleet"):
            yield one
            yield from subclasses(one)


def error_classes():
    list(modules())
    return sorted(set(subclasses(BatchfleetError)), key=lambda one: one.__name__)


def error_of(kind):
    """An error of this class with everything said that it can say."""
    if issubclass(kind, RequestError):
        reply = Reply("i", "t", "error", "m", "1", error={"code": 101, "rows": [3]}, meta="x")
        made = kind(ErrorKind.BUSY, "words", rows=(1, 2), retry_after_ms=5, reply=reply)
    elif issubclass(kind, RefusedError):
        made = kind("OOM", "OOM words")
    else:
        made = kind("words")
    made.add_note("a note")
    return made


@pytest.mark.parametrize("kind", error_classes(), ids=lambda one: one.__name__)
def test_every_error_comes_out_as_it_went_in(kind, crossed):
    before = error_of(kind)
    after = crossed(before)
    assert type(after) is kind
    assert (after.args, vars(after), str(after)) == (before.args, vars(before), str(before))


def test_errors_of_a_class_that_takes_something_else_come_out_too(crossed):
    class_of_a_user = type(
        "Own", (BatchfleetError,), {"__init__": own_init, "__module__": __name__}
    )
    globals()["Own"] = class_of_a_user
    after = crossed(class_of_a_user(1, b=2))
    assert (type(after), after.a, after.b, str(after)) == (class_of_a_user, 1, 2, "1 and 2")


def own_init(self, a, *, b):
    BatchfleetError.__init__(self, f"{a} and {b}")
    self.a, self.b = a, b


@pytest.mark.parametrize("kind", ErrorKind)
def test_kinds_stay_themselves_and_travel_by_number(kind, crossed):
    assert crossed(kind) is kind
    assert b"retryable" not in pickle.dumps(kind)


REPLY = Reply(
    "i", "t", "ok", "m", "1",
    outputs=[{"name": "x", "datatype": "FP32", "shape": [1], "data": b"\0\0\x80?"}],
    warnings=("w",), usage={"rows": 1}, receipt={"attempt": 1},
)  # fmt: skip
VALUES = {
    Engine: Engine("plain", "exact"),
    Envelope: Envelope("i", "t", "application/json", "m"),
    ErrorBody: ErrorBody(ErrorKind.BUSY, "words", (1,), 5),
    ErrorRow: ErrorKind.BUSY.value,
    Handle: Handle("m", "i", b"1-0", 5),
    Limits: Limits(max_batch_size=4),
    LoadContext: LoadContext(
        model="m", version="1", device="cpu", threads=1, seed=1, parameters={"a": 1},
        signature=Signature(), limits=Limits(), folder=Path(), logger=structlog.get_logger(),
    ),
    Options: Options(timeout_ms=5, parameters={"a": [1.5]}),
    PredictContext: PredictContext(lengths=[1], parameters={}, device="cpu", batch=1),
    Prepared: Prepared([1], 1, 2),
    Receipt: Receipt(batch="w:1"),
    Remedy: Remedy.WAIT,
    Reply: REPLY,
    Signature: Signature(),
    Source: Source.FLEET,
    State: State.OK,
    Usage: Usage(rows=1),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=lambda one: one.__name__)
def test_every_value_comes_out_as_it_went_in(kind, crossed):
    before = VALUES[kind]
    after = crossed(before)
    assert (type(after), after) == (type(before), before)


def test_a_row_keeps_what_stands_beside_its_values(crossed):
    after = crossed(Row({"x": 1}, {"t": 2}, "end"))
    assert (type(after), after, after.parameters, after.truncate) == (
        Row,
        {"x": 1},
        {"t": 2},
        "end",
    )


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_result_keeps_all_its_parts(looked_at, crossed):
    before = Result(REPLY)
    if looked_at:
        assert before.output.tolist() == [1.0]
    after = crossed(before)
    assert type(after) is Result
    for name in ("id", "tenant", "model", "version", "meta", "trace_id", "warnings", "usage"):
        assert getattr(after, name) == getattr(before, name)
    assert after.receipt == before.receipt
    np.testing.assert_array_equal(after.output, before.output)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_says_that_it_cannot(kind, crossed):
    client = kind(_URL)
    with pytest.raises(TypeError, match=f"^{kind.__name__} holds connections .* one in each"):
        crossed(client)


# Neither values nor errors: classes to derive from, functions, type aliases.
OTHERS = {Model, testing.serve, BatchfleetError}


def test_nothing_public_is_forgotten():
    public = {getattr(batchfleet, name) for name in batchfleet.__all__ if name[0] != "_"}
    public |= {getattr(testing, name) for name in testing.__all__}
    for module in modules():
        if module.__name__ == "batchfleet.wire.errors":
            public |= {one for one in vars(module).values() if inspect.isclass(one)}
    public = {one for one in public if inspect.isclass(one)}
    public = {one for one in public if one.__module__.startswith("batchfleet")}
    known = {*VALUES, *error_classes(), *OTHERS, Client, AsyncClient, Result, Row, ErrorKind}
    assert public <= known, public - known


def test_a_target_may_be_handed_over(crossed):
    before = Target(broker=RedisBroker(_URL), namespace="n", tenant="t")
    after = crossed(before)
    assert (after.namespace, after.tenant, type(after.broker)) == ("n", "t", RedisBroker)
