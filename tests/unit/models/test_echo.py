import hashlib
import re
import time

import numpy as np
import pytest
from support.cpu_time import cpu_time

from batchfleet.models.model import Prepared, Row
from batchfleet.models.runtimes.device_stub import DeviceStub
from batchfleet.models.runtimes.echo import Echo, echo_digest
from batchfleet.models.runtimes.faults import STAGES, SWITCHES, InjectedFaultError, parse_fault
from batchfleet.models.runtimes.noop import Noop
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import CallerError, ErrorKind

FAULTS = {"faults": True}


def run(model, batch, *rows):
    """Take rows through all three stages, as a device process does."""
    prepared = [model.preprocess(row) for row in rows]
    values = [
        it.value if isinstance(it, Prepared) else row
        for it, row in zip(prepared, rows, strict=True)
    ]
    lengths = [it.length if isinstance(it, Prepared) else it for it in prepared]
    return [model.postprocess(output) for output in model.predict(values, batch(*lengths))]


def test_a_text_digest_is_what_the_docstring_says(load, batch):
    (output,) = run(load(Echo), batch, Row({"text": "héllo"}))
    raw = "héllo".encode()
    assert output["digest"] == hashlib.sha256(b"1\ntext\nstr\n6\n" + raw).hexdigest()
    assert output["length"] == 1
    assert output["score"] == pytest.approx(int(output["digest"][:6], 16) / 2**24)
    assert output["score"].dtype == np.float32


def test_rows_of_any_kind_have_digests_of_their_own():
    rows = [
        {"x": np.array([1, 2], np.int64)},
        {"x": np.array([1, 2], np.int32)},
        {"x": np.array([[1, 2]], np.int64)},
        {"x": np.int64(1)},
        {"x": b"1"},
        {"x": "1"},
        {"y": "1"},
        {"x": "1", "y": ""},
        {"x": "\ud800"},
    ]
    digests = [echo_digest(row, "1") for row in rows]
    assert len({*digests, echo_digest(rows[0], "2")}) == len(rows) + 1


def test_the_digest_ignores_byte_order_and_order_of_columns():
    big = {"x": np.array([1, 2], ">i4"), "y": "a"}
    little = {"y": "a", "x": np.array([1, 2], "<i4")}
    assert echo_digest(big, "1") == echo_digest(little, "1")


@pytest.mark.parametrize(("characters", "length"), [(1, 1), (3, 1), (4, 2), (400, 101)])
def test_length_counts_characters_where_the_manifest_says_so(load, characters, length):
    row = Row({"text": "x" * characters})
    assert load(Echo, {"characters_per_token": 4}).preprocess(row) == length
    assert load(Echo).preprocess(row) == 1


def test_a_long_text_is_cut_or_refused(load):
    echo = load(Echo, {"characters_per_token": 4}, Limits(max_length=10))
    row = Row({"text": "x" * 100}, truncate="end")
    assert echo.preprocess(row) == Prepared(row, 10, 16)
    with pytest.raises(CallerError) as caught:
        echo.preprocess(Row({"text": "x" * 100}))
    assert caught.value.kind is ErrorKind.TOO_LONG


@pytest.mark.parametrize("length", [1, 2, 16, 255])
def test_examples_have_the_length_asked_for(load, length):
    echo = load(Echo, {"characters_per_token": 4})
    assert echo.preprocess(echo.example(length)) == length


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_strikes_in_its_stage_and_in_no_other(load, batch, stage):
    echo = load(Echo, FAULTS)
    row = Row({"text": f"!raise@{stage} and more"})
    reached = []

    def travel():
        prepared = echo.preprocess(row)
        reached.append("preprocess")
        (output,) = echo.predict([prepared.value], batch(1))
        reached.append("predict")
        echo.postprocess(output)

    with pytest.raises(InjectedFaultError):
        travel()
    assert reached == list(STAGES[: STAGES.index(stage)])


def test_one_row_of_a_batch_may_spoil_its_output_alone(load, batch):
    good, bad = run(load(Echo, FAULTS), batch, Row({"text": "a"}), Row({"text": "!nan"}))
    assert np.isfinite(good["score"])
    assert np.isnan(bad["score"])


def test_wrong_count_is_one_too_few_or_no_columns(load, batch):
    echo = load(Echo, FAULTS)
    rows = [Row({"text": "a"}), Row({"text": "!wrong_count"})]
    assert len(run(echo, batch, *rows)) == 1
    rows[1] = Row({"text": "!wrong_count@postprocess"})
    assert run(echo, batch, *rows)[1] == {}


def test_a_fault_that_does_no_lasting_harm_leaves_the_answer(load, batch):
    echo = load(Echo, FAULTS)
    (output,) = run(echo, batch, Row({"text": "!sleep:1"}))
    assert output["digest"] == echo_digest({"text": "!sleep:1"}, "1")
    (output,) = run(echo, batch, Row({"text": "!grow:1"}))
    assert output["digest"] == echo_digest({"text": "!grow:1"}, "1")
    assert sum(map(len, echo._kept)) == 1024 * 1024


def test_memory_error_is_a_memory_error(load, batch):
    with pytest.raises(MemoryError):
        run(load(Echo, FAULTS), batch, Row({"text": "!memory_error"}))


def test_hold_gil_uses_time_but_no_processor(load, batch):
    echo, started = load(Echo, FAULTS), time.monotonic()
    with cpu_time() as taken:
        run(echo, batch, Row({"text": "!hold_gil:50"}))
    assert time.monotonic() - started >= 0.05
    assert taken.seconds < 0.05


def test_a_request_may_carry_the_fault_in_its_parameters(load):
    echo = load(Echo, FAULTS)
    with pytest.raises(InjectedFaultError):
        echo.preprocess(Row({"x": np.zeros(3)}, {"fault": "raise@preprocess"}))
    with pytest.raises(ValueError, match="there is no fault 'rais'"):
        echo.preprocess(Row({"text": "a"}, {"fault": "rais"}))


def test_switches_are_off_unless_the_manifest_turns_them_on(load, batch):
    (output,) = run(load(Echo), batch, Row({"text": "!raise"}, {"fault": "raise"}))
    assert output["digest"] == echo_digest({"text": "!raise"}, "1")


@pytest.mark.parametrize(
    "text", ["!", "!important", "! raise", "!raise!", "!raise@nowhere", "!Raise"]
)
def test_a_text_that_spells_no_fault_is_echoed(load, batch, text):
    (output,) = run(load(Echo, FAULTS), batch, Row({"text": text}))
    assert output["digest"] == echo_digest({"text": text}, "1")


def test_faults_are_spelled_as_documented():
    documented = re.findall(r"^        ([a-z_]+)[ :]", Echo.__doc__ or "", re.MULTILINE)
    assert [name for name in documented if name in SWITCHES] == [
        "sleep", "raise", "hang", "segv", "grow", "hold_gil", "memory_error", "wrong_count", "nan",
    ]  # fmt: skip
    assert {parse_fault(name).switch for name in SWITCHES} == set(SWITCHES)
    assert parse_fault("hold_gil:9000@postprocess").value == 9000
    with pytest.raises(ValueError, match="cannot occur"):
        parse_fault("nan@nowhere")


def test_the_stub_costs_what_its_batch_costs(load, batch):
    stub = load(DeviceStub, {"characters_per_token": 4})
    assert stub.cost_ms([10, 100]) == pytest.approx(20 + 0.02 * 200)
    quick = load(DeviceStub, {"base_ms": 1, "per_token_ms": 1})
    started = time.monotonic()
    (output, _) = run(quick, batch, Row({"text": "a"}), Row({"text": "b"}))
    assert time.monotonic() - started >= 0.003
    assert output["digest"] == echo_digest({"text": "a"}, "1")


def test_noop_gives_every_row_the_same_small_output(load, batch):
    outputs = run(load(Noop), batch, Row({"text": "a"}), Row({"x": np.zeros(2)}))
    assert [output["output"].tolist() for output in outputs] == [[0.25, 0.75]] * 2
    assert outputs[0]["output"].dtype == np.float32
