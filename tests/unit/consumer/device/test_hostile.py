"""Whatever a model raises, says, returns or does to its process ends its own request only."""

import json
import subprocess

import pytest
from support.device_process import HOSTILE, columns_of, failure_kind, running_device, texts
from support.hostile_models import ERRORS, LENGTHS, OUTPUTS, REFUSALS, SILENCERS

from batchfleet.consumer.link.protocol import PrepareRun, Ready, Refused, Stop
from batchfleet.wire.codec import MSGPACK
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.limits import ERROR_MESSAGE_CHARACTERS_MAX

STAGES = ("preprocess", "predict", "postprocess")
# Made as what a model may raise, or return, to choose the error of a row.
OF_OURS = ("spoiled", "no_kind", "no_text", "odd_rows", "odd_pause")


@pytest.fixture(scope="module")
def hostile():
    """A device process that outlives every test of this file, with a good version loaded."""
    with running_device(HOSTILE) as device:
        assert isinstance(device.load("hostile"), Ready)
        yield device
        assert device.process.poll() is None


def failure_among_good_rows(device, text, accept=MSGPACK):
    """The failure of a request beside two good ones in one batch, whose answers are right."""
    before, bad, after = (
        device.item(texts(one), accept=accept) for one in ("before", text, "after")
    )
    device.send(PrepareRun(1, device.lane, [before, bad, after]))
    ends = device.ends_of([before.request, bad.request, after.request])
    for item, upper in ((before, "BEFORE"), (after, "AFTER")):
        assert columns_of(ends[item.request], accept)["upper"] == [upper]
    message = ends[bad.request].message
    assert len(message) <= ERROR_MESSAGE_CHARACTERS_MAX
    assert message.replace("\n", "").isprintable()
    return ends[bad.request]


@pytest.fixture(autouse=True)
def _nothing_is_left_over(request):
    yield
    if "hostile" in request.fixturenames:
        request.getfixturevalue("hostile").seen.clear()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_any_class_fails_its_own_request(hostile, stage, name):
    failure = failure_among_good_rows(hostile, f"{stage}:{name}")
    assert failure_kind(failure) is ErrorKind.MODEL_ERROR
    assert failure.rows == [0]


@pytest.mark.parametrize("name", OF_OURS)
def test_an_error_that_is_returned_for_a_row_may_hold_anything(hostile, name):
    failure = failure_among_good_rows(hostile, f"error:{name}")
    assert failure_kind(failure) is ErrorKind.MODEL_ERROR


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_may_say_anything(hostile, stage, name):
    failure = failure_among_good_rows(hostile, f"{stage}:{name}")
    refuses = stage == "preprocess"
    assert failure_kind(failure) is (ErrorKind.BAD_INPUTS if refuses else ErrorKind.MODEL_ERROR)


@pytest.mark.parametrize("what", ["length", "truncated"])
@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_that_is_none_is_a_bad_output(hostile, what, name):
    failure = failure_among_good_rows(hostile, f"{what}:{name}")
    assert failure_kind(failure) is ErrorKind.BAD_OUTPUT


def test_a_length_may_be_a_number_with_a_will_of_its_own(hostile):
    failure = failure_among_good_rows(hostile, "odd_length:")
    assert failure_kind(failure) is ErrorKind.MODEL_ERROR


@pytest.mark.parametrize("accept", ["application/json", MSGPACK])
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_is_none_is_a_bad_output(hostile, name, accept):
    failure = failure_among_good_rows(hostile, f"output:{name}", accept)
    assert failure_kind(failure) is ErrorKind.BAD_OUTPUT


@pytest.mark.parametrize("name", ["stack", "pad_value", "huge", "pad_side"])
def test_attributes_that_are_code_fail_requests_and_nothing_else(name):
    with running_device(HOSTILE) as device:
        assert isinstance(device.load("odd_attributes", version=name), Ready)
        items = [device.item(texts(text)) for text in ("a", "bc")]
        device.send(PrepareRun(1, device.lane, items))
        ends = device.ends_of([item.request for item in items])
        assert isinstance(device.load("hostile"), Ready)
        assert failure_among_good_rows(device, "predict:panic")
    kinds = {failure_kind(end) for end in ends.values()}
    assert kinds <= {ErrorKind.MODEL_ERROR, ErrorKind.BAD_OUTPUT}


def test_an_array_that_does_not_let_itself_be_copied_is_answered(hostile):
    item = hostile.item(texts("odd arrays"))
    hostile.send(PrepareRun(1, hostile.lane, [item]))
    answer = hostile.ends_of([item.request])[item.request]
    assert columns_of(answer)["upper"].tolist() == [[1.0, 1.0]]


def test_a_list_that_lies_of_its_length_is_a_bad_output(hostile):
    item = hostile.item(texts("lying"))
    (failure,) = hostile.prepare_run([item]).failures
    assert failure_kind(failure) is ErrorKind.BAD_OUTPUT


@pytest.mark.parametrize("name", [*ERRORS, *REFUSALS])
def test_an_error_of_any_class_refuses_the_version_that_is_loaded(hostile, name):
    try:
        refused = hostile.load("hostile", version=name)
        assert isinstance(refused, Refused)
        assert refused.message.startswith(f"hostile/{name}: ")
        assert refused.message.replace("\n", "").isprintable()
    finally:
        hostile.lane = 1


@pytest.mark.parametrize("stage", STAGES)
def test_each_error_is_told_in_the_log_with_its_trace(stage, tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as stderr, running_device(HOSTILE, stderr=stderr) as device:
        device.load("hostile")
        for name in ERRORS:
            failure_among_good_rows(device, f"{stage}:{name}")
        device.send(Stop())
        device.rest()
    log = [json.loads(line) for line in path.read_bytes().splitlines()]
    told = [entry for entry in log if entry["event"] == "model_raised"]
    kinds = {type(ERRORS[name]()) for name in ERRORS.keys() - OF_OURS}
    assert len(kinds) <= len(told) < len(ERRORS.keys() - OF_OURS), "each type and place, once"
    assert all(entry["exception"] and "not_rendered" not in entry for entry in told)
    assert {(entry["stage"], entry["model"]) for entry in told} == {(stage, "hostile")}


@pytest.mark.parametrize("name", SILENCERS)
def test_a_model_that_sets_up_its_process_does_not_silence_the_log(name):
    with running_device(HOSTILE, stderr=subprocess.PIPE) as device:
        assert isinstance(device.load("silencer", version=name), Ready)
        for _ in range(3):
            (failure,) = device.prepare_run([device.item(texts("hello"))]).failures
            assert failure_kind(failure) is ErrorKind.MODEL_ERROR
        device.send(Stop())
        log = [json.loads(line) for line in device.process.stderr]
    raised = [entry for entry in log if entry["event"] == "model_raised"]
    assert len(raised) == 1
    assert "KeyError: 'told in the log'" in raised[0]["exception"]
    assert [entry["text"] for entry in log if entry["event"] == "from_the_model"] == ["hello"] * 3


def test_what_a_model_cannot_do_here_is_told_with_what_to_do(hostile):
    with running_device(HOSTILE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as device:
        device.load("chatty")
        items = [device.item(texts(text)) for text in ("input", "signal", "hello")]
        done = device.prepare_run(items)
    said = {failure.request: failure.message for failure in done.failures}
    assert said.keys() == {items[0].request, items[1].request}
    assert "EOFError" in said[items[0].request]
    assert "batchfleet dev" in said[items[0].request]
    assert "docs/models.md" in said[items[1].request]
