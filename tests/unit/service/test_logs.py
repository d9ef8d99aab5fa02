import json
import logging
import os
import sys
import warnings

import pytest
import structlog
from support.manual_clock import ManualClock

from batchfleet.service.logs import (
    OTHER_KINDS,
    DescriptorLog,
    OncePerKind,
    configure_logs,
    configure_logs_if_unset,
    shown_error,
)


@pytest.fixture
def configure():
    """`configure_logs`, with everything put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    show = warnings.showwarning
    yield configure_logs
    logging.captureWarnings(capture=False)
    warnings.showwarning = show
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_go_to_stderr(configure, capsys):
    configure("info", "json")
    structlog.get_logger().info("worker.started", worker="w-1")
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert line["event"] == "worker.started"
    assert line["worker"] == "w-1"
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_control_characters_never_reach_the_terminal(configure, capsys, log_format):
    configure("info", log_format)
    hostile = "a\x1b[2Jb\nrouter.stopped\r\x9b\u202ec\x00"
    structlog.get_logger().warning("router.entry_dropped", kind=hostile, nested=[hostile])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    assert "2Jb" in err


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_is_logged_with_its_hostile_text_escaped(configure, capsys, log_format):
    configure("info", log_format)
    try:
        raise RuntimeError("boom\x1b[2J")
    except RuntimeError:
        structlog.get_logger().exception("router.entry_failed")
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "boom" in err
    assert "\x1b" not in err


def test_standard_logging_and_warnings_come_out_the_same_way(configure, capsys):
    configure("warning", "json")
    logging.getLogger("library").info("too low to be seen")
    logging.getLogger("library").warning("from %s", "a library")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old thing", UserWarning, stacklevel=1)
        logging.captureWarnings(capture=False)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["event"] == "from a library"
    assert "old thing" in second["event"]


def test_the_last_configuration_counts(configure, capsys):
    configure("debug", "json")
    configure("error", "console")
    structlog.get_logger().warning("unseen")
    structlog.get_logger().error("seen")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("level", "log_format"), [("loud", "json"), ("info", "xml")])
def test_unknown_levels_and_formats_are_refused(level, log_format):
    with pytest.raises(ValueError, match="no log"):
        configure_logs(level, log_format)


def test_a_kind_is_admitted_once_and_then_counted():
    clock = ManualClock()
    limiter = OncePerKind(clock, summary_ms=1000)
    assert [limiter.admit("no id"), limiter.admit("no id"), limiter.admit("bad id")] == [
        True,
        False,
        True,
    ]
    assert limiter.admit("no id", count=5) is False
    assert limiter.summary() == {}
    clock.advance(1000)
    assert limiter.summary() == {"no id": 6}
    assert limiter.admit("no id") is True
    assert limiter.summary() == {}


def test_kinds_are_bounded():
    clock = ManualClock()
    limiter = OncePerKind(clock, kinds_max=2, summary_ms=1000)
    admitted = [kind for kind in ("a", "b", "c", "d", "e", "a") if limiter.admit(kind)]
    clock.advance(1000)
    assert admitted == ["a", "b", "c"]
    assert limiter.summary() == {"a": 1, OTHER_KINDS: 2}


class Unshowable:
    def __repr__(self):
        raise BaseExceptionGroup("no words", [KeyError()])


class UnshowableError(Exception):
    def __str__(self):
        raise KeyError


def test_an_error_that_cannot_be_shown_is_named_all_the_same():
    assert shown_error(UnshowableError()).startswith("UnshowableError: (its text cannot be shown")
    assert shown_error(ValueError("x" * 1000)) == f"ValueError: {'x' * 288}"


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("value", [Unshowable(), {("a",): 1}, [10**5000], "\ud800", float("nan")])
def test_every_record_gives_a_line_whatever_is_in_it(configure, capsys, log_format, value):
    configure("info", log_format)
    structlog.get_logger().warning("odd", value=value, text="kept")
    logging.getLogger("library").warning("odd %d", "no number")
    first, second = capsys.readouterr().err.splitlines()
    assert "odd" in first
    assert "kept" in first
    assert "test_logs.py" in second


def test_a_trace_of_many_frames_keeps_its_both_ends(configure, capsys):
    configure("info", "json")
    error = None
    for at in range(2000):
        cause, error = error, KeyError(at)
        error.__cause__ = cause
    structlog.get_logger().error("deep", exc_info=error)
    told = json.loads(capsys.readouterr().err)["exception"]
    assert told.startswith("KeyError: 0\n")
    assert told.endswith("KeyError: 1999")
    assert len(told) < 100_000


@pytest.mark.parametrize("stderr", [None, object(), "closed"])
def test_a_stderr_that_takes_nothing_stops_nobody(configure, monkeypatch, tmp_path, stderr):
    configure("info", "json")
    if stderr == "closed":
        stderr = (tmp_path / "stderr").open("w")
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    structlog.get_logger().error("unheard")
    logging.getLogger("library").error("unheard")
    assert sys.stderr is stderr
    configure("info", "console")
    structlog.get_logger().error("unheard")


def test_a_logger_continues_as_it_was_when_others_configure_theirs(configure, capsys):
    configure("info", "json")
    logger = structlog.get_logger().bind(process="device")
    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers.clear()
    structlog.configure(processors=[lambda *_: 1 / 0])
    try:
        logger.warning("told", at=1)
    finally:
        logging.disable(logging.NOTSET)
    assert json.loads(capsys.readouterr().err)["event"] == "told"


def test_a_reader_who_does_not_read_holds_nobody_up_for_long(monkeypatch):
    monkeypatch.setattr(DescriptorLog, "PATIENCE_MS", 50)
    read, write = os.pipe()
    log = DescriptorLog(write)
    log.write_line("x" * 1_000_000)
    log.write_line("lost")
    got = os.read(read, 1 << 20)
    while len(got) < 1 << 16:
        got += os.read(read, 1 << 20)
    log.write_line("heard\ud800")
    assert set(got) == {ord("x")}
    assert os.read(read, 1 << 20) == b"\nheard\\ud800\n"
    os.close(read)
    log.write_line("unheard")
    os.close(write)
    log.write_line("unheard")


def test_a_library_says_everything_on_the_stderr_of_the_moment(capsys):
    structlog.reset_defaults()
    try:
        configure_logs_if_unset()
        structlog.get_logger().warning("odd", value=Unshowable())
        structlog.get_logger().info("too low to be seen")
    finally:
        structlog.reset_defaults()
    assert len(capsys.readouterr().err.splitlines()) == 1
