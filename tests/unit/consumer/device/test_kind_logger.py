"""X7, T14: faults that callers bring about are told once a kind, and then counted."""

import json
from types import SimpleNamespace

import pytest
from support.device_process import running_device, texts
from support.manual_clock import ManualClock

from batchfleet.consumer.device.kind_logger import KindLogger, place_of
from batchfleet.consumer.link.protocol import Stop

REQUESTS = 500
LOG_BYTES = 20_000


class Lines(list):
    def error(self, event, **fields):
        self.append(("error", event, fields))

    def warning(self, event, **fields):
        self.append(("warning", event, fields))

    def critical(self, event, **fields):
        self.append(("critical", event, fields))


@pytest.fixture
def told():
    lines, clock = Lines(), ManualClock()
    return SimpleNamespace(lines=lines, clock=clock, logger=KindLogger(lines, clock))


def raised(kind=KeyError, text="a caller's text"):
    try:
        raise kind(text)
    except (KeyError, ValueError) as error:
        return error


def test_each_kind_is_told_with_its_trace_and_then_counted(told):
    """X7: type, place and stage make a kind; words of callers make none."""
    for at in range(1000):
        told.logger.error("model_raised", stage="predict", exc_info=raised(text=f"text {at}"))
    other = raised(ValueError)
    told.logger.error("model_raised", stage="predict", exc_info=other)
    told.logger.error("model_raised", stage="preprocess", exc_info=raised())
    assert [fields["stage"] for _, _, fields in told.lines] == ["predict", "predict", "preprocess"]
    assert all("exc_info" in fields for _, _, fields in told.lines)
    told.lines.clear()
    told.logger.log_counts()
    assert not told.lines
    told.clock.advance(60_000)
    told.logger.log_counts()
    ((level, event, fields),) = told.lines
    assert (level, event, fields["count"]) == ("warning", "model_raised", 999)
    assert fields["kind"] == f"predict KeyError at {place_of(raised())}"
    assert "text" not in fields["kind"]


def test_a_minute_later_it_is_told_with_its_trace_again(told):
    """X7."""
    told.logger.error("model_raised", stage="predict", exc_info=raised())
    told.clock.advance(60_000)
    told.logger.error("model_raised", stage="predict", exc_info=raised())
    assert len([fields for _, _, fields in told.lines if "exc_info" in fields]) == 2


def test_what_has_no_trace_is_told_once_a_kind_as_well(told):
    """X7: `batch_failed`."""
    for rows in range(100):
        told.logger.warning("batch_failed", rows=rows, error_type="KeyError", reason=f"x{rows}")
    told.logger.warning("batch_failed", rows=2, error_type="ValueError")
    assert [fields["rows"] for _, _, fields in told.lines] == [0, 2]


def test_what_ends_the_process_is_told_each_time(told):
    """X7."""
    for _ in range(3):
        told.logger.critical("model_left", stage="predict")
    assert len(told.lines) == 3


@pytest.mark.parametrize("text", ["raise", "nothing", "memory"])
def test_the_log_of_failing_requests_does_not_grow_with_them(text, tmp_path):
    """X7, T14: a device process, and whatever a caller sends that a model fails on."""
    path = tmp_path / "log"
    with path.open("wb") as stderr, running_device(stderr=stderr) as device:
        device.load("faulty")
        for _ in range(REQUESTS):
            assert device.prepare_run([device.item(texts(text))]).failures
        device.send(Stop())
        device.rest()
    log = path.read_bytes()
    assert len(log) < LOG_BYTES
    assert all(json.loads(line) for line in log.splitlines())
