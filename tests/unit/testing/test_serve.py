"""`batchfleet.testing.serve`: a model of a few lines, inside this process."""
# ruff: noqa: ARG002  the signatures are those of Model

import bdb
import io
import math
import os
import sys
import threading
import traceback
from typing import ClassVar

import numpy as np
import pytest
import structlog.testing

import batchfleet
from batchfleet import CallerError, Model, ModelError
from batchfleet.models.model import Prepared
from batchfleet.testing import ModelRefusedError, serve
from batchfleet.wire.errors import ErrorKind, SettingsError
from batchfleet.wire.states import State

PATIENCE_S = 20.0


class Shout(Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper(), "alike": len(rows)} for row in rows]


class Careful(Model):
    """Fails in the stage and row that a text names; `exit` ends what it runs in."""

    def preprocess(self, row):
        self.fail(row["text"], "preprocess")
        return Prepared(row["text"], len(row["text"]))

    def predict(self, rows, context):
        for row in rows:
            self.fail(row, "predict")
        return list(rows)

    def postprocess(self, row):
        self.fail(row, "postprocess")
        return {"text": row}

    def fail(self, text, stage):
        if text == f"raise in {stage}":
            raise KeyError(f"no such thing in {stage}")
        if text == f"exit in {stage}":
            sys.exit(3)


def test_a_model_of_a_few_lines_answers():
    with batchfleet.testing.serve(Shout) as client:
        result = client.infer("Shout", ["hello", "world"])
    assert result.outputs["text"] == ["HELLO", "WORLD"]
    assert (result.model, result.version, result.receipt["rows"]) == ("Shout", "1", 2)


def test_every_call_of_a_client_works():
    with serve(Shout, name="shout") as client:
        handle = client.submit("shout", "a", id="mine")
        assert client.result(handle).outputs["text"] == ["A"]
        assert client.status(handle) is State.OK
        kept = client.submit("shout", "b")
        assert client.result(("shout", kept.id)).outputs["text"] == ["B"]
        assert client.poll(("shout", "nobody")) is None
        answers = client.map("shout", (f"text {at}" for at in range(100)), concurrency=16)
        assert [answer.outputs["text"] for answer in answers] == [
            [f"TEXT {at}"] for at in range(100)
        ]
        with pytest.raises(CallerError) as caught:
            client.infer("other", "a")
        assert caught.value.kind is ErrorKind.UNKNOWN_MODEL


def test_requests_share_batches():
    """Those that come while a batch runs go into the next one together."""
    entered, go = threading.Event(), threading.Event()

    class Gate(Model):
        def predict(self, rows, context):
            entered.set()
            assert go.wait(PATIENCE_S)
            return [{"batch": context.batch} for _ in rows]

    with serve(Gate) as client:
        first = client.submit("Gate", "first")
        assert entered.wait(PATIENCE_S)
        others = [client.submit("Gate", f"text {at}") for at in range(8)]
        go.set()
        batches = [int(client.result(one).outputs["batch"][0]) for one in (first, *others)]
    assert len(set(batches)) < len(batches)


def test_the_model_runs_in_this_process_with_its_files_and_parameters(tmp_path):
    (tmp_path / "words.txt").write_text("one two")

    class Knowing(Model):
        def load(self, context):
            self.words = context.path("words.txt").read_text().split()
            self.factor = context.parameters["factor"]
            self.limits = context.limits

        def predict(self, rows, context):
            facts = {
                "words": " ".join(self.words),
                "pid": os.getpid(),
                "product": self.factor * 2,
                "most": self.limits.max_batch_size,
            }
            return [facts for _ in rows]

    with serve(Knowing, folder=tmp_path, parameters={"factor": 21}, max_batch_size=4) as client:
        outputs = client.infer("Knowing", "x").outputs
    assert outputs["words"] == ["one two"]
    assert [int(outputs[name][0]) for name in ("pid", "product", "most")] == [os.getpid(), 42, 4]


def test_what_the_class_says_counts_and_arguments_go_before_it():
    class Doubled(Model):
        signature: ClassVar = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
        }
        limits: ClassVar = {"max_rows_per_request": 3, "max_batch_size": 2}

        def predict(self, rows, context):
            return [{"y": row["x"] * 2} for row in rows]

    inputs = np.arange(8, dtype=np.float32).reshape(4, 2)
    with serve(Doubled) as client:
        with pytest.raises(CallerError) as caught:
            client.infer("Doubled", {"x": inputs})
        assert caught.value.kind is ErrorKind.TOO_MANY_ROWS
        with pytest.raises(CallerError) as caught:
            client.infer("Doubled", "text")
        assert caught.value.kind is ErrorKind.BAD_INPUTS
    with serve(Doubled, max_rows_per_request=4) as client:
        np.testing.assert_array_equal(client.infer("Doubled", {"x": inputs}).output, inputs * 2)


@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_a_fault_shows_its_own_trace_in_the_log_and_no_more_than_a_message_in_the_reply(stage):
    with structlog.testing.capture_logs() as logs, serve(Careful) as client:
        neighbours = [client.submit("Careful", f"fine {at}") for at in range(4)]
        with pytest.raises(ModelError) as caught:
            client.infer("Careful", f"raise in {stage}")
        answers = [client.result(neighbour).outputs["text"] for neighbour in neighbours]
    assert answers == [[f"fine {at}"] for at in range(4)]
    assert caught.value.kind is ErrorKind.MODEL_ERROR
    assert "no such thing" in caught.value.message
    assert __file__ not in caught.value.message
    (raised,) = [entry for entry in logs if entry["event"] == "model_raised"]
    trace = "".join(traceback.format_exception(raised["exc_info"]))
    assert raised["stage"] == stage
    assert f'File "{__file__}"' in trace
    assert f"in {stage}" in trace


@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_a_model_that_exits_is_found_out_alone_and_the_process_continues(stage):
    with structlog.testing.capture_logs() as logs, serve(Careful) as client:
        culprit = client.submit("Careful", f"exit in {stage}")
        neighbours = [client.submit("Careful", f"fine {at}") for at in range(4)]
        with pytest.raises(ModelError) as caught:
            client.result(culprit)
        answers = [client.result(neighbour).outputs["text"] for neighbour in neighbours]
    assert caught.value.kind is ErrorKind.POISON
    assert "SystemExit: 3" in caught.value.message
    left = [entry for entry in logs if entry["event"] == "model_left"]
    assert {(entry["model"], entry["version"], entry["stage"]) for entry in left} == {
        ("Careful", "1", stage)
    }
    trace = "".join(traceback.format_exception(left[0]["exc_info"]))
    frames = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert all(__file__ in frame for frame in frames)
    assert answers == [[f"fine {at}"] for at in range(4)]
    assert any(entry["event"] == "device.lost" for entry in logs)


@pytest.mark.parametrize("limits", [{"predict_ms": 200}, {"preprocess_ms": 100, "predict_ms": 200}])
def test_a_row_that_hangs_is_cut_off_at_the_limit_that_a_test_gives(limits):
    released = threading.Event()

    class Slow(Model):
        def predict(self, rows, context):
            if any(row["text"] == "hang" for row in rows):
                assert released.wait(PATIENCE_S)
            return [{"text": row["text"]} for row in rows]

    try:
        with serve(Slow, **limits) as client:
            culprit = client.submit("Slow", "hang")
            with pytest.raises(ModelError) as caught:
                client.result(culprit)
            assert client.infer("Slow", "fine").output == ["fine"]
    finally:
        released.set()
    assert caught.value.kind is ErrorKind.TIME_LIMIT


def test_a_model_that_cannot_be_loaded_is_refused_with_its_reason():
    class Broken(Shout):
        def load(self, context):
            raise FileNotFoundError("the weights are missing")

    with (
        structlog.testing.capture_logs() as logs,
        pytest.raises(ModelRefusedError, match="weights are missing"),
        serve(Broken),
    ):
        raise AssertionError("it was served")
    assert any(entry["event"] == "load_failed" for entry in logs)


def test_a_model_that_exits_while_it_is_loaded_is_refused():
    class Exiting(Shout):
        def load(self, context):
            sys.exit("no licence")

    with (
        structlog.testing.capture_logs() as logs,
        pytest.raises(ModelRefusedError, match="no licence"),
        serve(Exiting),
    ):
        raise AssertionError("it was served")
    assert [entry["stage"] for entry in logs if entry["event"] == "model_left"] == ["load"]


def test_wrong_limits_and_names_are_told_at_once():
    with pytest.raises(TypeError, match="takes a class"), serve(Shout()):
        raise AssertionError("it was served")
    with pytest.raises(SettingsError, match="max_batch_sise"), serve(Shout, max_batch_sise=4):
        raise AssertionError("it was served")
    with pytest.raises(SettingsError, match="nan"), serve(Shout, parameters={"t": math.nan}):
        raise AssertionError("it was served")
    with pytest.raises(CallerError, match="name"), serve(Shout, name="a:b"):
        raise AssertionError("it was served")


def test_two_models_are_served_side_by_side_and_no_thread_is_left():
    before = set(threading.enumerate())
    with serve(Shout) as shout, serve(Careful) as careful:
        assert shout.infer("Shout", "a").outputs["text"] == ["A"]
        assert careful.infer("Careful", "a").outputs["text"] == ["a"]
        with pytest.raises(CallerError):
            shout.infer("Careful", "a")
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(PATIENCE_S)
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_an_error_of_the_test_itself_goes_through():
    with pytest.raises(ZeroDivisionError), serve(Shout):
        raise ZeroDivisionError


def test_a_breakpoint_in_a_model_stops_in_this_process(monkeypatch):
    stopped = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stopped.append(sys._getframe(1).f_code))

    class Curious(Model):
        def predict(self, rows, context):
            breakpoint()  # noqa: T100  what this test is about
            return [{"text": row["text"]} for row in rows]

    with serve(Curious) as client:
        assert client.infer("Curious", "a").output == ["a"]
    assert stopped == [Curious.predict.__code__]


@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_whoever_quits_the_debugger_is_not_stopped_again_for_the_other_rows(stage):
    stops = []

    class Curious(Shout):
        def preprocess(self, row):
            self.stop("preprocess")
            return row

        def predict(self, rows, context):
            self.stop("predict")
            return rows

        def postprocess(self, row):
            self.stop("postprocess")
            return row

        def stop(self, at):
            if at == stage:
                stops.append(at)
                raise bdb.BdbQuit

    with (
        structlog.testing.capture_logs() as logs,
        serve(Curious) as client,
        pytest.raises(ModelError) as caught,
    ):
        client.infer("Curious", ["a", "b", "c", "d"])
    assert stops == [stage]
    assert "debugger" in caught.value.message
    assert "BdbQuit" not in caught.value.message
    assert [entry["stage"] for entry in logs if entry["event"] == "debugger_quit"] == [stage]


def test_a_breakpoint_without_a_terminal_says_what_it_lacks(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    class Curious(Shout):
        def predict(self, rows, context):
            raise bdb.BdbQuit

    with serve(Curious) as client, pytest.raises(ModelError, match="not a terminal") as caught:
        client.infer("Curious", "a")
    assert "batchfleet dev" in caught.value.message


def test_outputs_that_are_refused_are_told_to_the_author_once_a_kind_without_what_was_asked():
    class Wrong(Shout):
        def preprocess(self, row):
            return 0 if row["text"] == "preprocess secret" else len(row["text"])

        def predict(self, rows, context):
            text = rows[0]["text"]
            if text == "count secret":
                return [*rows, *rows]
            if text == "type secret":
                return [{"score": [1, text]} for text in rows]
            return [{"score": np.nan} for _ in rows]

    asked = ["nan secret", "nan secret", "preprocess secret", "count secret", "type secret"]
    with structlog.testing.capture_logs() as logs, serve(Wrong) as client:
        for text in asked:
            with pytest.raises(ModelError) as caught:
                client.infer("Wrong", text)
            assert caught.value.kind is ErrorKind.BAD_OUTPUT
    told = [entry for entry in logs if entry["event"] == "bad_output"]
    assert {entry["model"] for entry in told} == {"Wrong"}
    reasons = [entry["reason"] for entry in told]
    assert len(reasons) == 4
    assert "NaN" in reasons[0]
    assert "length" in reasons[1]
    assert "2 outputs for 1 rows" in reasons[2]
    assert "score" in reasons[3]
    assert "secret" not in str(logs)


def test_where_a_row_was_refused_is_told_once_without_its_words():
    class Picky(Shout):
        def preprocess(self, row):
            if "secret" in row["text"]:
                raise ValueError(f"not {row['text']}")
            return row

    with structlog.testing.capture_logs() as logs, serve(Picky) as client:
        for number in range(3):
            with pytest.raises(CallerError):
                client.infer("Picky", f"secret {number}")
    (told,) = [entry for entry in logs if entry["event"] == "rows_refused"]
    assert told["at"].startswith(f"{__file__}:")
    assert "secret" not in str(told)


def test_lists_of_numbers_are_outputs_like_any_array():
    class Listing(Shout):
        signature: ClassVar = {
            "outputs": [
                {"name": "score", "datatype": "FP32", "shape": [-1, 2]},
                {"name": "rank", "datatype": "INT64", "shape": [-1, 2]},
            ]
        }

        def predict(self, rows, context):
            return [{"score": [1, 2.5], "rank": [len(row["text"]) / 2, 2]} for row in rows]

    with serve(Listing) as client:
        with pytest.raises(ModelError, match="rank"):
            client.infer("Listing", "a")

        Listing.predict = lambda _, rows, __: [{"score": [1, 2.5], "rank": [3, 4]} for _ in rows]
        outputs = client.infer("Listing", ["a", "b"]).outputs
        np.testing.assert_array_equal(outputs["score"], [[1, 2.5], [1, 2.5]])
        assert (outputs["score"].dtype, outputs["rank"].dtype) == (np.float32, np.int64)
