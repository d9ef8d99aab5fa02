import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchfleet.service.events import Events
from batchfleet.service.fault_points import (
    POINTS,
    VARIABLE,
    ArmedPoint,
    CrashError,
    FaultPointError,
    FaultPoints,
    find_fault_points,
    parse_point,
)
from batchfleet.service.settings_sources import load_settings
from batchfleet.wire.errors import BatchfleetError, ServerError, SettingsError

ROOT = Path(__file__).parents[3]

PROGRAM = """\
import sys
from batchfleet.service.events import Events
from batchfleet.service.fault_points import find_fault_points
from batchfleet.service.logs import configure_logs

configure_logs("info", "json")
points = find_fault_points({"BATCHFLEET_FAULT_POINTS": sys.argv[1]}, Events())
points.reach("worker.after_take")
print("survived", flush=True)
"""


def armed(text, events=None):
    return find_fault_points({VARIABLE: text}, events or Events())


def test_without_the_variable_nothing_is_armed():
    for environ in ({}, {VARIABLE: ""}):
        points = find_fault_points(environ, Events())
        assert type(points) is FaultPoints
        assert [points.reach(name) for name in POINTS] == [None] * len(POINTS)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("router.after_read=kill", ArmedPoint("router.after_read", "kill", 0, 1)),
        ("router.after_read=raise@3", ArmedPoint("router.after_read", "raise", 0, 3)),
        ("worker.before_run=delay:20@2", ArmedPoint("worker.before_run", "delay", 20, 2)),
    ],
)
def test_points_are_read(text, point):
    assert parse_point(text) == point


@pytest.mark.parametrize(
    "text",
    [
        "worker.after_take",
        "worker.after_take=",
        "worker.nowhere=kill",
        "worker.after_take=explode",
        "worker.after_take=delay",
        "worker.after_take=kill:20",
        "worker.after_take=kill@0",
        "worker.after_take=kill,,",
    ],
)
def test_what_spells_no_point_keeps_a_program_from_starting(text):
    with pytest.raises(SettingsError, match=VARIABLE):
        armed(text)


def test_a_point_acts_once_at_its_time_and_tells_so_before():
    events = Events()
    points = armed("worker.after_take=raise@2", events)
    points.reach("worker.after_take")
    points.reach("worker.before_run")
    assert events.snapshot()["fault.fired"] == 0
    with pytest.raises(FaultPointError):
        points.reach("worker.after_take")
    assert events.snapshot()["fault.fired"] == 1
    points.reach("worker.after_take")
    assert events.snapshot()["fault.fired"] == 1


def test_one_error_is_to_be_survived_and_one_is_not():
    assert issubclass(FaultPointError, ServerError)
    assert not issubclass(CrashError, BatchfleetError)
    with pytest.raises(CrashError):
        armed("worker.after_take=crash").reach("worker.after_take")


def run(text):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, text], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_kill_ends_the_process_after_its_event_was_written():
    with run("worker.after_take=kill") as process:
        out, log = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert out == b""
    assert b'"fault.fired"' in log


def test_stop_stops_the_process_until_it_is_continued():
    with run("worker.after_take=stop") as process:
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert stopped.si_status == signal.SIGSTOP
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=20)
    assert out == b"survived\n"


def test_delay_lets_time_pass_and_continues():
    with run("worker.after_take=delay:10") as process:
        out, _ = process.communicate(timeout=20)
    assert out == b"survived\n"


def test_the_variable_is_no_setting_and_no_stranger():
    load_settings({}, {VARIABLE: "worker.after_take=kill"})
    assert "fault" not in load_settings({}, {})[1]


def test_every_point_is_passed_somewhere_and_none_is_unknown():
    code = [
        path for folder in ("router", "consumer", "ops") for path in (ROOT / folder).rglob("*.py")
    ]
    passed = [
        name
        for path in code
        for name in re.findall(r"faults\.reach\(\s*\"([^\"]+)\"", path.read_text())
    ]
    assert sorted(passed) == sorted(POINTS)


def test_the_document_names_every_point():
    text = (ROOT / "docs" / "testing.md").read_text()
    assert [name for name in POINTS if f"`{name}`" not in text] == []
