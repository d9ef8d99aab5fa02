"""Who fails in a device process, with which error, and who does not."""

import json
import subprocess

import pytest
from support.device_process import (
    columns_of,
    failure_kind,
    limited,
    running_device,
    signed,
    texts,
)

from batchfleet.consumer.link.protocol import Done, Failure, Prepare, PreparedRows, Run, Stop
from batchfleet.wire.codec import MSGPACK
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.signature import TensorSpec

LANE = 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("raise", ErrorKind.MODEL_ERROR),
        ("memory", ErrorKind.DEVICE_MEMORY),
        ("refuse", ErrorKind.SESSION_LOST),
        ("nothing", ErrorKind.BAD_OUTPUT),
        ("generator", ErrorKind.BAD_OUTPUT),
        ("wrong_count", ErrorKind.BAD_OUTPUT),
        ("nan", ErrorKind.BAD_OUTPUT),
        ("infinity", ErrorKind.BAD_OUTPUT),
        ("wide", ErrorKind.BAD_OUTPUT),
        ("object", ErrorKind.BAD_OUTPUT),
        ("surrogate", ErrorKind.BAD_OUTPUT),
        ("other_names", ErrorKind.BAD_OUTPUT),
    ],
)
def test_only_the_culprit_of_eight_rows_fails(shared_device, text, kind):
    shared_device.load("faulty")
    rows = ["a", "bb", "ccc", "dddd", "eeeee", text, "ggggggg"]
    items = [shared_device.item(texts(row)) for row in rows if row != text]
    culprit = shared_device.item(texts("first", text))
    done = shared_device.prepare_run([*items[:5], culprit, *items[5:]])
    assert len(done.rows) == 8
    if text in ("wide", "object", "surrogate", "other_names"):
        # These are faults only beside another row, or to a codec; each shows when answers are made.
        assert [end.request for end in done.failures] == [culprit.request]
    else:
        assert [(end.request, end.rows) for end in done.failures] == [(culprit.request, [1])]
    assert failure_kind(done.failures[0]) is kind
    assert {end.request for end in done.answers} == {item.request for item in items}
    scores = [columns_of(answer)["score"].item() for answer in done.answers]
    assert scores == [len(row) for row in rows if row != text]


def test_a_request_that_failed_is_forgotten_and_its_other_rows_run_no_more(device):
    device.load("faulty")
    item = device.item(texts("a", "raise", "b"))
    device.send(Prepare(LANE, [item]))
    device.expect(PreparedRows)
    device.send(Run(1, LANE, [(item.request, 1)]))
    device.send(Run(2, LANE, [(item.request, 0), (item.request, 2)]))
    assert [failure.rows for failure in device.expect(Done).failures] == [[1]]
    assert device.expect(Done) == Done(2, [], 0.0, [], [], [])


def test_the_trace_of_a_model_goes_to_the_log_and_not_to_the_caller():
    with running_device(stderr=subprocess.PIPE, text=True) as device:
        device.load("faulty")
        (failure,) = device.prepare_run([device.item(texts("raise"))]).failures
        assert failure.message == "KeyError: 'a secret of the model'"
        device.send(Stop())
        log = [json.loads(line) for line in device.process.stderr]
    (entry,) = [entry for entry in log if entry["event"] == "model_raised"]
    assert "Traceback" in entry["exception"]
    assert (entry["model"], entry["stage"]) == ("faulty", "predict")


@pytest.mark.parametrize(
    ("inputs", "fields", "kind"),
    [
        (b"{", {}, ErrorKind.BAD_INPUTS),
        (b"", {}, ErrorKind.BAD_INPUTS),
        (b"\xc1", {"content_type": MSGPACK}, ErrorKind.BAD_INPUTS),
        (b"{}", {"content_type": "text/plain"}, ErrorKind.UNSUPPORTED_CONTENT_TYPE),
        (b"[]", {}, ErrorKind.BAD_INPUTS),
        (b'{"text": []}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": [1]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["a"], "more": 1}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": [""]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["a"]}', {"parameters": b"[1]"}, ErrorKind.BAD_REQUEST),
        (b'{"text": ["a"]}', {"parameters": b"{"}, ErrorKind.BAD_REQUEST),
        (b'{"text": ["a", "b", "c"]}', {}, ErrorKind.TOO_MANY_ROWS),
        (b'{"text": ["a", "far too long"]}', {}, ErrorKind.TOO_LONG),
        (b'{"text": ["value"]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["key"]}', {}, ErrorKind.MODEL_ERROR),
        (b'{"text": ["memory"]}', {}, ErrorKind.DEVICE_MEMORY),
        (b'{"text": ["nothing"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["zero"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["true"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["empty"]}', {}, ErrorKind.BAD_OUTPUT),
    ],
)
def test_what_is_wrong_with_a_request_is_said_and_its_neighbour_runs(
    shared_device, inputs, fields, kind
):
    text = TensorSpec(name="text", datatype="BYTES")
    shared_device.load(
        "picky", **signed(inputs=[text]), **limited(max_rows_per_request=2, max_length=6)
    )
    bad, good = shared_device.item(inputs, **fields), shared_device.item(texts("good"))
    done = shared_device.prepare_run([bad, good])
    assert [failure_kind(failure) for failure in done.failures] == [kind]
    assert [failure.request for failure in done.failures] == [bad.request]
    assert "secret" not in done.failures[0].message or kind is ErrorKind.MODEL_ERROR
    assert columns_of(done.answers[0])["output"].tolist() == [4]


def test_every_row_that_preprocessing_refuses_is_named(device):
    device.load("picky")
    device.send(Prepare(LANE, [device.item(texts("a", "value", "b", "value", "key"))]))
    (failure,) = device.expect(PreparedRows).failures
    assert failure == Failure(1, 101, "the model does not like this", [1, 3])
