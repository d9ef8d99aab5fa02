import subprocess
import sys
from pathlib import Path

import pytest
from acceptance.measuring.promise import (
    Promise,
    at_least,
    at_most,
    attempt,
    equals,
    skipped,
)
from acceptance.measuring.raw_client import RawClient, ServerSaidError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("promise", "holds"),
    [
        (at_least("x", 1.2, 1.2), True),
        (at_least("x", 1.19, 1.2), False),
        (at_most("x", 1.9, 1.9), True),
        (at_most("x", 1.91, 1.9), False),
        (at_least("x", float("nan"), 0), False),
        (at_most("x", float("nan"), 0), False),
        (equals("x", 3, 3), True),
        (equals("x", 2, 3), False),
        (skipped("x", "no network"), False),
    ],
)
def test_a_promise_holds_only_within_its_bound(promise, holds):
    assert promise.holds is holds


def test_what_breaks_is_a_promise_that_does_not_hold(capsys):
    def broken():
        raise OSError("no disk")

    (promise,) = attempt("a part", broken)
    assert promise == Promise(promise="a part", bound="OSError: no disk", figure=None, holds=False)
    assert promise.shown == "not measured"
    assert "no disk" in capsys.readouterr().err


def test_an_unknown_capability_is_refused_by_name():
    command = [sys.executable, "-m", "tests.acceptance", "nosuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'demo'" in done.stderr


def test_the_raw_client_reads_every_kind_of_answer(redis_server, namespace):
    key = f"{namespace}:x"
    for url in (redis_server.url, redis_server.socket_url):
        with RawClient(url) as client:
            assert client.send("PING") == b"PONG"
            assert client.send("DEL", key) in (0, 1)
            assert client.send("RPUSH", key, "a\r\nb", b"\x00") == 2
            assert client.send("LRANGE", key, "0", "-1") == [b"a\r\nb", b"\x00"]
            assert client.send("GET", key + "y") is None
            with pytest.raises(ServerSaidError, match="WRONGTYPE"):
                client.send("GET", key)
