"""One run of the fault matrix from end to end; `make fault` plays them all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_is_played_and_judged():
    command = [sys.executable, "-m", "tests.fault", "worker.before_finish.raise"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["runs"] == 1
    assert line["requests"] >= 8
    faults = ("lost", "duplicate_answers", "wrong", "late")
    assert {name: line[name] for name in faults} == dict.fromkeys(faults, 0)
    assert (line["failed"], line["not_played"]) == ([], [])
