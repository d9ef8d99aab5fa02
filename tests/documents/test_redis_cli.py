"""The stand-in for `redis-cli`, on a real server."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("redis_cli.py")


@pytest.fixture
def ask(redis_url, namespace):
    def run(command, *arguments):
        keyed = [argument.replace("KEY", f"{namespace}:key") for argument in arguments]
        done = subprocess.run(
            [sys.executable, PROGRAM, "-u", redis_url, command, *keyed],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        return done.stdout

    return run


def test_answers_of_all_kinds(ask):
    assert ask("SET", "KEY", "a b\u03a9\nc") == "OK\n"
    assert ask("GET", "KEY") == "a b\u03a9\nc\n"
    assert ask("STRLEN", "KEY") == "7\n"
    assert ask("GET", "KEY:none") == "\n"
    assert ask("MGET", "KEY:none", "KEY", "KEY:none") == "\na b\u03a9\nc\n\n"
    assert ask("LPUSH", "KEY", "1").startswith("WRONGTYPE ")
