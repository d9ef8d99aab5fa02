"""Servers that we start are their user's alone: sockets, ports, and files with passwords."""

import json
import os
import stat
import subprocess
from pathlib import Path

import psutil
import pytest
import redis
from support.commands import PROGRAM, batchfleet
from support.other_user import answer_to_ping, as_attacker, needs_another_user
from support.ports import free_port
from support.server import KINDS, private_server

from batchfleet import Client
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from batchfleet.models.importing import import_builtin
from batchfleet.models.store import Store
from batchfleet.service.lifecycle import spawn

PATIENCE_S = 60


class Fleet:
    """`batchfleet up` or `dev`, and all that it showed."""

    def __init__(self, folder, *arguments):
        self.log = (folder / "log").open("w+b")
        self.process = spawn(
            [*PROGRAM, *arguments, "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=self.log
        )
        self.line = self.process.stdout.readline().decode()
        assert self.line, (folder / "log").read_text()
        self.facts = json.loads(self.line)

    def command_lines(self):
        family = psutil.Process(self.process.pid).children(recursive=True)
        return [" ".join(one.cmdline()) for one in family]

    def shown(self):
        self.log.seek(0)
        return self.line + self.log.read().decode()

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.log.close()


@pytest.fixture
def start(tmp_path):
    import_builtin(Store(str(tmp_path / "store")), "echo")
    (tmp_path / "model.py").write_text(
        "import batchfleet\n\n\nclass Shout(batchfleet.Model):\n"
        "    def predict(self, rows, context):\n"
        "        return [{'text': row['text'].upper()} for row in rows]\n"
    )
    started = []

    def run(*arguments):
        started.append(Fleet(tmp_path, *arguments))
        return started[-1]

    yield run
    for one in started:
        one.close()


@pytest.mark.slow
@needs_another_user
@pytest.mark.parametrize("command", [("up",), ("dev", "model.py")])
def test_another_user_cannot_reach_the_server_of_a_fleet(start, command):
    """X1, T16: `up` and `dev` are reached by a socket that only their user may use."""
    fleet = start(*command)
    path = fleet.facts["redis_url"].removeprefix("unix://")
    assert path.startswith("/")
    assert answer_to_ping(path) == "PermissionError"
    assert redis.Redis.from_url(fleet.facts["redis_url"], socket_timeout=5, retry=None).ping()
    (server,) = [one for one in psutil.Process(fleet.process.pid).children() if is_server(one)]
    assert [one for one in server.net_connections("tcp") if one.status == "LISTEN"] == []


def is_server(process):
    return "server" in process.name()


@pytest.mark.slow
@pytest.mark.parametrize("command", [("up",), ("dev", "model.py")])
def test_a_port_has_a_password_that_lies_in_a_private_file(start, command, monkeypatch):
    """X9, T16: what was asked for with --port is found by the file, and shown nowhere."""
    port = free_port()
    fleet = start(*command, "--port", str(port))
    file = Path(fleet.facts["redis_url_file"])
    url = file.read_text().strip()
    password = url.partition("://:")[2].partition("@")[0]
    assert len(password) >= 22
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert fleet.facts["redis_url"] == f"redis://:***@127.0.0.1:{port}/0"
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port, socket_timeout=5, retry=None).ping()
    monkeypatch.setenv("BATCHFLEET_REDIS_URL_FILE", str(file))
    with Client() as client:
        model = fleet.facts.get("model", "echo")
        assert client.infer(model, "hello").outputs
    done, settings = batchfleet("status", "--json"), batchfleet("settings")
    shown = [fleet.shown(), done.stdout, done.stderr, settings.stdout, *fleet.command_lines()]
    assert [text for text in shown if password in text] == []


@needs_another_user
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_on_a_port_lets_nobody_in_without_its_password(kind):
    """T16: the servers of the tests as well; neither port nor socket nor folder helps another."""
    with private_server(kind) as server:
        assert answer_to_ping(server.port).startswith("-NOAUTH")
        assert answer_to_ping(str(server.socket_path)) == "PermissionError"
        listing = f"try: print(os.listdir({str(server.folder)!r}))\nexcept OSError: print('no')"
        assert as_attacker(listing) == "no"
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert server.password not in command


@pytest.mark.parametrize("port", [0, 1])
def test_a_socket_is_private_in_a_folder_that_is_not(server_program, tmp_path, port):
    """T16: whatever folder it is told to work in."""
    tmp_path.chmod(0o777)
    options = ServerOptions(program=server_program, port=port and free_port(), folder=tmp_path)
    server = EmbeddedServer(options)
    server.start()
    try:
        assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o700
        if os.geteuid() == 0:
            assert answer_to_ping(str(server.socket_path)) == "PermissionError"
    finally:
        server.stop()
