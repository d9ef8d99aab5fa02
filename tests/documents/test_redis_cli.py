"""The stand-in for `redis-cli`, on a real server."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.server import private_server

PROGRAM = Path(__file__).with_name("redis_cli.py")


@pytest.fixture
def ask(redis_url, namespace):
    """A command by the URL, which holds a password."""

    def run(command, *arguments):
        keyed = [argument.replace("KEY", f"{namespace}:key") for argument in arguments]
        done = subprocess.run(
            [sys.executable, PROGRAM, "-u", redis_url, command, *keyed],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        return done.stdout

    return run


@pytest.mark.parametrize("is_let_in", [True, False])
def test_socket_and_port_with_a_password_from_the_environment(is_let_in, monkeypatch):
    with private_server() as server:
        monkeypatch.setenv("REDISCLI_AUTH", server.password if is_let_in else "")
        for where in (("-s", server.socket_path), ("-p", str(server.port))):
            done = subprocess.run(
                [sys.executable, PROGRAM, *where, "PING"],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
            assert ("PONG" if is_let_in else "NOAUTH") in done.stdout


def test_answers_of_all_kinds(ask):
    assert ask("SET", "KEY", "a b\u03a9\nc") == "OK\n"
    assert ask("GET", "KEY") == "a b\u03a9\nc\n"
    assert ask("STRLEN", "KEY") == "7\n"
    assert ask("GET", "KEY:none") == "\n"
    assert ask("MGET", "KEY:none", "KEY", "KEY:none") == "\na b\u03a9\nc\n\n"
    assert ask("LPUSH", "KEY", "1").startswith("WRONGTYPE ")
