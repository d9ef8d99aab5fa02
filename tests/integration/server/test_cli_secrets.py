"""Secrets on the command line: in no output, however it ends; and addresses that lead nowhere."""

import traceback

import pytest
from click.testing import CliRunner
from support.commands import batchfleet

from batchfleet.ops.cli import main

SECRET = "hunter2"
URL = f"redis://user:{SECRET}@127.0.0.1:1/0"
BAD_URL = f"redis://user:{SECRET}@127.0.0.1:port/0"
STORE = f"ftp://user:{SECRET}@127.0.0.1:1/x"


@pytest.fixture
def run(restored_logs, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, environ=None):
        return CliRunner(env=environ).invoke(main, arguments)

    return run


def told(result):
    """All that was printed, and the trace that --debug shows."""
    error = result.exception
    shown = "" if error is None else "".join(traceback.format_exception(error))
    return result.stdout + result.stderr + shown


COMMANDS = [
    ("status",),
    ("settings",),
    ("settings", "--json"),
    ("infer", "m", "x"),
    ("submit", "m", "x", "--json"),
    ("requests", "list", "m"),
    ("dead", "list", "m"),
    ("pause", "m"),
    ("deploy", "m"),
]
# Those wait for a server that is not there yet.
WAITING = [("router", "--json"), ("consumer", "--json")]
MALFORMED = [BAD_URL, f":{SECRET}@h", f"{URL}?socket_timeout=abc"]


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    ("command", "url"),
    [
        *((command, URL) for command in COMMANDS),
        *((command, url) for command in (COMMANDS[0], *WAITING) for url in MALFORMED),
    ],
    ids=str,
)
def test_no_output_holds_the_password(run, command, url, debug):
    """X9, T14: by a flag, by a variable and by a malformed URL, on stdout, stderr and in traces."""
    by_flag = run(*debug, *command, "--redis-url", url)
    by_variable = run(*debug, *command, environ={"BATCHFLEET_REDIS_URL": url})
    assert SECRET not in told(by_flag)
    assert SECRET not in told(by_variable)


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    "command",
    [("models", "list"), ("models", "show", "m"), ("models", "import", "echo"), ("settings",),
     ("settings", "--json")],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("store", [STORE, f"nosuch://user:{SECRET}@h/x", f"ftp://u:a/{SECRET}@h/"])
def test_no_output_holds_the_password_of_a_store(run, command, store, debug):
    """X9: a store's URL as well."""
    assert SECRET not in told(run(*debug, *command, "--store", store))


def test_up_says_nothing_of_the_password_of_a_server_of_ones_own(tmp_path):
    """X9: as a process of its own, since `up` ends all that descends from it."""
    for url in (URL, BAD_URL):
        up = ("--debug", "up", "--json", "--redis-url", url)
        done = batchfleet(*up, exit_code=1, cwd=tmp_path)
        assert SECRET not in done.stdout + done.stderr


def test_a_flag_with_a_password_warns_once(run):
    """X9: and names the variable and the file."""
    result = run("settings", "--redis-url", URL)
    assert result.exit_code == 0
    assert result.stderr.count("warning:") == 1
    assert "BATCHFLEET_REDIS_URL_FILE" in result.stderr
    for arguments, environ in (
        (("--redis-url", "redis://127.0.0.1:1"), {}),
        ((), {"BATCHFLEET_REDIS_URL": URL}),
    ):
        assert "warning:" not in run("settings", *arguments, environ=environ).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--redis-url", "redis://127.0.0.1:1?socket_timeout=abc"),
        ("status", "--redis-url", "redis://127.0.0.1:1?db=abc"),
        ("status", "--redis-url", "redis://127.0.0.1:1?ssl_cert_reqs=none"),
        ("status", "--redis-url", "rediss://127.0.0.1:1?ssl_cert_reqs=abc"),
        ("status", "--redis-url", "redis://127.0.0.1:1"),
        ("models", "list", "--store", "nosuch://x"),
        ("models", "list", "--store", "s3://bucket/x"),
        ("models", "list", "--store", "ftp://127.0.0.1:1/x"),
        ("models", "list", "--store", "ftp://127.0.0.1:abc/x"),
        ("models", "list", "--store", "simplecache::nosuch://x"),
        ("models", "show", "m", "--store", "http://127.0.0.1:1/x"),
    ],
    ids=" ".join,
)
def test_a_store_or_server_that_cannot_be_reached_is_one_sentence(run, arguments):
    """X13: exit code 1, and no trace."""
    result = run(*arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error") >= 1
