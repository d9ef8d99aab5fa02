"""A fleet on a port with a password, used by all kinds of commands, and searched for it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import psutil

from batchfleet.models.importing import import_builtin
from batchfleet.models.store import Store
from batchfleet.service.lifecycle import spawn
from tests.support.ports import free_port

from .promise import at_least, equals

_PROGRAM = [sys.executable, "-m", "batchfleet.ops"]
_PATIENCE_S = 120
_COMMANDS = """
    infer echo hello
    infer echo hello --json
    infer nothing hello
    submit echo hello --id mine
    result echo mine --json
    requests show echo mine
    requests list echo --json
    status
    status --json
    settings
    settings --json
    settings --model echo --json
    dead list echo --json
    pause echo
    resume echo
    deploy set echo backlog=7 --json
    models list --json
    deploy nothing
    --debug infer nothing hello
"""


def kept_secrets(*, quick):
    """How often the server's password is found where it must not be; 0 everywhere."""
    del quick
    with tempfile.TemporaryDirectory(prefix="batchfleet-secrets-") as name:
        folder = Path(name)
        import_builtin(Store(str(folder / "store")), "echo")
        with (folder / "log").open("wb") as log:
            up = spawn(
                [*_PROGRAM, "up", "--json", "--port", str(free_port()), "--log-level", "debug"],
                cwd=folder, stdout=subprocess.PIPE, stderr=log, env=_environ(folder),
            )  # fmt: skip
        try:
            line = up.stdout.readline().decode()
            places = {"the ready line": line} | _places(orjson.loads(line), folder)
        finally:
            up.terminate()
            up.communicate(timeout=_PATIENCE_S)
        password = places.pop("password")
        places["logs"] = (folder / "log").read_text()
        found = {place: text.count(password) for place, text in places.items()}
        searched = sum(map(len, places.values()))
        return [
            *(equals(f"passwords found in {place}", count, 0) for place, count in found.items()),
            at_least("characters that were searched", searched, 10_000),
        ]


def _environ(folder, **more):
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BATCHFLEET_")}
    return {**kept, "BATCHFLEET_STORE": str(folder / "store"), **more}


def _places(facts, folder):
    url_file = Path(facts["redis_url_file"])
    password = url_file.read_text().partition("://:")[2].partition("@")[0]
    environ = _environ(folder, BATCHFLEET_REDIS_URL_FILE=str(url_file))
    outputs = [
        subprocess.run(
            [*_PROGRAM, *line.split()], env=environ, cwd=folder, capture_output=True, text=True,
            timeout=_PATIENCE_S, check=False,
        )
        for line in _COMMANDS.strip().splitlines()
    ]  # fmt: skip
    devices = [
        child
        for pid in facts["pids"]["consumers"]
        for child in psutil.Process(pid).children(recursive=True)
    ]
    return {
        "password": password,
        "outputs of commands": "".join(done.stdout + done.stderr for done in outputs),
        "command lines": "\n".join(
            " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
        ),
        "environments of device processes": "\n".join(
            f"{name}={text}" for device in devices for name, text in device.environ().items()
        ),
        "the server's log": (url_file.parent / "server.log").read_text(),
    }
