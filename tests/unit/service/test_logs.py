import json
import logging
import warnings

import pytest
import structlog

from batchfleet.service.clock import ManualClock
from batchfleet.service.logs import OTHER_KINDS, OncePerKind, configure_logs


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
