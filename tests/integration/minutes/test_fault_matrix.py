"""One run of the fault matrix from end to end; `make fault` plays them all."""

import json
import sys
from pathlib import Path

from support.commands import run

ROOT = Path(__file__).parents[3]


def test_a_run_is_played_and_judged():
    command = [sys.executable, "-m", "tests.fault", "worker.before_finish.raise"]
    done = run(command, cwd=ROOT, timeout_s=110)
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["runs"] == 1
    assert line["requests"] >= 8
    faults = ("lost", "duplicate_answers", "wrong", "late")
    assert {name: line[name] for name in faults} == dict.fromkeys(faults, 0)
    assert (line["failed"], line["not_played"]) == ([], [])
