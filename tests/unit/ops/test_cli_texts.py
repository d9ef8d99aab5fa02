"""What the command line prints, and how it reads what was typed."""

import io
from io import StringIO

import click
import numpy as np
import pytest
from rich.console import Console

from batchfleet.ops.cli._shared import answers
from batchfleet.ops.cli._shared.answers import (
    describe_outputs,
    read_inputs,
    reply_json,
    result_json,
)
from batchfleet.ops.cli._shared.asking import option_fields
from batchfleet.ops.cli._shared.failures import explain
from batchfleet.ops.cli._shared.options import settings_of, split_version
from batchfleet.ops.cli.status import render
from batchfleet.ops.survey import FleetStatus, ModelStatus, VersionStatus, read_worker
from batchfleet.producer.result import Result
from batchfleet.service.settings import SETTING_ROWS
from batchfleet.wire.errors import (
    CallerError,
    EnvironmentMissingError,
    ErrorKind,
    RequestError,
    ServerError,
    SettingsError,
    StoreError,
    VersionRefusedError,
)
from batchfleet.wire.limits import INPUTS_BYTES_MAX
from batchfleet.wire.reply import Reply


def test_texts_are_inputs_as_they_are():
    assert read_inputs(("one", "two"), None) == ["one", "two"]


@pytest.mark.parametrize("raw", [b'["one", "two"]', b'"one"', b'{"text": ["one"]}'])
def test_a_file_holds_what_a_client_takes(raw):
    assert read_inputs((), io.BytesIO(raw)) in (["one", "two"], "one", {"text": ["one"]})


def test_a_file_may_hold_tensors_of_the_contract():
    raw = b'[{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}]'
    columns = read_inputs((), io.BytesIO(raw))
    assert columns["x"].dtype == np.float32
    assert columns["x"].tolist() == [[0.5, 1.5]]


def test_tensors_of_a_file_may_leave_their_datatype_to_the_signature():
    raw = (
        b'[{"name": "x", "shape": [1, 2], "data": [1, 2]},'
        b' {"name": "t", "shape": [1], "data": ["a"]}]'
    )
    assert read_inputs((), io.BytesIO(raw)) == {"x": [[1, 2]], "t": ["a"]}


def test_a_file_may_be_larger_than_a_request_but_not_without_bounds(monkeypatch):
    numbers = b'{"x": [[' + b", ".join([b"0.1234567890123456"] * 1_000_000) + b"]]}"
    assert len(numbers) > INPUTS_BYTES_MAX
    assert len(read_inputs((), io.BytesIO(numbers))["x"][0]) == 1_000_000
    monkeypatch.setattr(answers, "_FILE_BYTES_MAX", 10)
    with pytest.raises(CallerError, match="too_large"):
        read_inputs((), io.BytesIO(b'"0123456789"'))


def test_inputs_that_are_not_json_are_refused():
    with pytest.raises(CallerError, match="not JSON"):
        read_inputs((), io.BytesIO(b"{"))


@pytest.mark.parametrize(("texts", "file"), [((), None), (("one",), io.BytesIO(b'"two"'))])
def test_texts_and_file_are_one_or_the_other(texts, file):
    with pytest.raises(click.UsageError, match="either texts or --input"):
        read_inputs(texts, file)


def test_options_that_were_not_given_are_left_out():
    given = {"id": None, "timeout": 1.5, "parameters": '{"a": 1}', "meta": "x", "retries": 2}
    assert option_fields(given | {"delay": 0.25}) == {
        "timeout_ms": 1500,
        "delay_ms": 250,
        "parameters": {"a": 1},
        "meta": "x",
        "retries": 2,
    }


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_parameters_must_be_a_json_object(text):
    with pytest.raises(click.BadParameter):
        option_fields({"parameters": text})


def test_outputs_show_size_and_the_first_numbers():
    outputs = {"embedding": np.arange(8, dtype=np.float32).reshape(1, 8), "name": ["x"]}
    lines = describe_outputs(outputs)
    assert lines == [
        "embedding  FP32 [1, 8]",
        "  0 1 2 3 4 5 …  (8 numbers)",
        "name  1 texts",
        '  "x"',
    ]


def test_many_rows_are_cut():
    lines = describe_outputs({"n": np.zeros(50, np.int64)})
    assert len(lines) == 22
    assert lines[-1] == "  … and 30 more rows"


def test_a_reply_with_raw_bytes_becomes_json():
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": b"\0\0\0\0\0\0\x80?"}
    reply = Reply("r1", "default", "ok", "m", "1", outputs=[tensor])
    shown = reply_json(reply)
    assert shown["outputs"][0]["data"].tolist() == [0.0, 1.0]
    assert "error" not in shown


@pytest.mark.parametrize(
    ("error", "line", "remedy"),
    [
        (RequestError.of(ErrorKind.BUSY, "full"), "busy (200): full", "backlog"),
        (RequestError.of(ErrorKind.INTERNAL, "oh"), "internal (290): oh", ""),
        (StoreError("gone"), "store: gone", "models list"),
        (SettingsError("wrong"), "settings: wrong", "batchfleet settings"),
        (ServerError("away"), "server: away", "BATCHFLEET_REDIS_URL"),
    ],
)
def test_an_error_is_told_with_its_name_and_the_remedy(error, line, remedy):
    told, advice = explain(error)
    assert told == line
    assert remedy in advice


@pytest.mark.parametrize(
    ("typed", "parts"), [("m", ("m", None)), ("m/1", ("m", "1")), ("m/1/2", ("m", "1/2"))]
)
def test_model_and_version_as_typed(typed, parts):
    assert split_version(typed) == parts


def test_a_slash_wants_a_version():
    with pytest.raises(click.BadParameter):
        split_version("m/")


def test_a_program_has_the_options_of_its_settings_and_no_others():
    router, consumer = settings_of("router"), settings_of("consumer")
    assert "redis_url" in router
    assert "store" not in router
    assert {"store", "device", "threads"} < set(consumer)
    assert set(settings_of("up")) == set(SETTING_ROWS)


def test_a_worker_is_read_from_what_it_announced():
    lanes = b'{"1": {"state": "refused", "reason": "no device"}}'
    worker = read_worker("w", {"lanes": lanes, "room": b"64", "host": b"\xff"})
    assert worker.state_of("1") == "refused"
    assert worker.state_of("2") == "not loaded"
    assert worker.facts == {"room": "64", "host": "�"}
    assert worker.stalled == ""


def test_a_worker_tells_which_engine_runs_a_version():
    lanes = (
        b'{"1": {"state": "ready", "engine": "packed", "gain": "1.60"},'
        b' "2": {"state": "ready"}, "3": {"state": "ready", "engine": ""}}'
    )
    worker = read_worker("w", {"lanes": lanes})
    assert worker.engine_of("1") == " (packed, 1.60 × plain)"
    assert worker.engine_of("2") == worker.engine_of("3") == worker.engine_of("4") == ""


def test_a_worker_whose_loops_stand_still_is_complained_of():
    worker = read_worker("w", {"lanes": b"{}", "stalled": b"intake m, keeper"})
    found = FleetStatus(
        routers={"r1": {"m": 1}},
        namespace="n",
        server_version="1",
        memory_bytes=0,
        memory_bytes_max=0,
        models=[ModelStatus(model="m", workers=[worker])],
    )
    console = Console(width=200, file=StringIO())
    console.print(render(found))
    assert "m on w: stalled: intake m, keeper" in console.file.getvalue()


def version_of(name, **facts):
    return VersionStatus(
        version=name, **{"stable": False, "ready_workers": 1, "entries": {}, **facts}
    )


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (version_of("1", stable=True, share=100.0), "1 (stable)"),
        (version_of("1", stable=True, share=87.5), "1 (stable, 87.5 %)"),
        (version_of("2", share=12.5), "2 (canary, 12.5 %)"),
        (version_of("2"), "2 (offered)"),
        (version_of("2", answered=7, errors=3), "7 │      3"),
        (version_of("2", p50_ms=1.234, p99_ms=200.0), "1.23 / 200 ms"),
    ],
)
def test_a_version_is_shown_with_its_part_of_the_requests(version, told):
    model = ModelStatus(model="m", versions=[version], kept=["0"])
    found = FleetStatus(
        routers={}, namespace="n", server_version="1", memory_bytes=0, memory_bytes_max=0,
        models=[model],
    )  # fmt: skip
    console = Console(width=200, file=StringIO())
    console.print(render(found))
    assert told in console.file.getvalue()
    assert "0 (kept)" in console.file.getvalue()


def test_long_texts_are_cut_with_their_size():
    (head, row) = describe_outputs({"x": ["a" * 3_000_000]})
    assert head == "x  1 texts"
    assert len(row) < 3000
    assert row.endswith("…  (3000000 characters)")
    assert describe_outputs({"x": ["short", b"raw"]})[1:] == ['  "short"', "  b'raw'"]


def test_outputs_that_are_wanted_are_named_with_commas():
    assert option_fields({"outputs": "a, b"}) == {"outputs": ["a", "b"]}


def test_a_result_as_json_says_for_whom_it_is():
    result = Result(Reply("a", "acme", "ok", "m", "1", {"text": ["x"]}))
    assert result_json(result)["tenant"] == "acme"


def test_what_a_model_lacks_is_no_fault_of_the_store():
    for error in (VersionRefusedError("m/1: no"), EnvironmentMissingError("it needs env")):
        assert "models list" not in explain(error)[1]
    assert "models list" in explain(StoreError("there is no m/1"))[1]
