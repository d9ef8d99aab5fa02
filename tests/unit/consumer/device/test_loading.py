"""Loading versions into a device process: ready, or refused with a reason."""

import os

import pytest
from support.device_models import LINEAGE
from support.device_process import (
    limited,
    release,
    signed,
    texts,
)

from batchfleet.consumer.link.protocol import (
    Begun,
    Done,
    Load,
    Memory,
    Prepare,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
)
from batchfleet.wire.signature import TensorSpec

SCORE = TensorSpec(name="score", datatype="FP32", shape=(-1, 1))
LANE = 1


def test_a_lane_is_ready_with_lineage_memory_and_a_curve_of_every_bucket_it_takes(device):
    ready = device.load("plain", bytes_per_token=1.0, **limited(buckets=(4, 16, 64), max_length=60))
    assert isinstance(ready, Ready), ready
    assert ready.lineage == LINEAGE
    assert ready.load_ms > 0
    measured = [(rows, length) for rows, length, milliseconds in ready.curve if milliseconds > 0]
    # The lengths are those that the examples really have: here one more than was asked for.
    assert measured == [(rows, length) for rows in (1, 2, 4, 8, 16, 32) for length in (5, 17)]


@pytest.mark.parametrize(
    ("model", "fields", "reason"),
    [
        ("unloadable", {}, "unloadable/1: OSError: weights are unreadable"),
        ("coldfeet", {}, "coldfeet/1: its warm-up failed: KeyError: 'not warm'"),
        ("plain", {"device": "tpu"}, "use cpu, cpu:0-1 or cuda:N"),
        ("plain", {"device": "cpu:4095"}, "cores [4095] are not available here"),
        ("plain", {"lineage": "f" * 16}, "is not what was deployed"),
        ("plain", signed(outputs=[SCORE]), "declared are ['score']"),
    ],
)
def test_a_version_that_cannot_be_served_is_refused_with_its_reason(
    shared_device, model, fields, reason
):
    refused = shared_device.load(model, **fields)
    assert isinstance(refused, Refused)
    assert reason in refused.message
    assert isinstance(shared_device.load("plain"), Ready)


def test_a_record_that_is_none_is_refused(device):
    device.send(Load(LANE, "plain", "1", "/", "cpu", 1, b"not JSON", "", 0, 0))
    assert "plain/1" in device.expect(Refused).message


def test_a_lane_may_be_pinned_to_cores(device):
    core = min(os.sched_getaffinity(0))
    assert isinstance(device.load("plain", device=f"cpu:{core}"), Ready)
    assert os.sched_getaffinity(device.process.pid) == {core}


def test_memory_is_reported_when_it_grows(device):
    device.load("growing")
    first = device.expect(Memory).resident_bytes
    device.prepare_run([device.item(texts("a"))])
    assert device.expect(Memory).resident_bytes > first + (16 << 20)


@pytest.fixture
def gate(tmp_path):
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def test_batches_of_others_run_between_the_parts_of_a_load(device, gate):
    device.load("plain")
    plain = device.lane
    device.begin_load("gradual", store=str(gate.parent), beside=("plain/1", 0, 100))
    device.send(PrepareRun(7, plain, [device.item(texts("a"))]))
    device.send(Prepare(plain, [device.item(texts("b"))]))
    device.expect(PreparedRows)  # so what was sent before it has been received
    release(gate)
    assert device.expect(Begun, Done, Ready) == Begun(7)
    done = device.expect(Done, Ready)
    assert done.batch == 7
    assert len(done.answers) == 1
    ready = device.expect(Ready)
    assert ready.memory_bytes > 30 << 20


def test_a_version_that_needs_more_memory_than_is_free_is_refused_beside_others(device):
    far_too_much = 1 << 50
    refused = device.load("plain", beside=("echo/1", far_too_much, 0))
    assert "not enough memory beside echo/1: it needs" in refused.message
    assert isinstance(device.load("plain", beside=("", far_too_much, 0)), Ready)
    assert isinstance(device.load("plain", beside=("echo/1", 1000, 0)), Ready)
