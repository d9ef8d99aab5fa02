"""The command line as a user runs it: in this process where nothing stays behind, else for real."""

import importlib
import json
import subprocess
import sys

import click
import pytest
import redis
from click.testing import CliRunner

from batchfleet.broker import fleet, membership
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.ops.cli import COMMANDS, main
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.limits import TIMEOUT_MS_DEFAULT


@pytest.fixture
def deployed_echo(cli):
    cli("models", "import", "echo")
    cli("deploy", "echo")


@pytest.fixture
def executor(redis_server):
    with BlockingExecutor(redis_server.socket_url, "test") as executor:
        yield executor


def walk(command, path):
    """Every command below `command`, with the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), [*path, name])


ALL_COMMANDS = [
    pytest.param(command, id=" ".join(path))
    for name in COMMANDS
    for path, command in walk(main.get_command(click.Context(main), name), [name])
]


# Help


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_every_command_explains_itself(command):
    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()) > 5
    # A group whose commands carry the examples, and lists that take no arguments, need none.
    if command.name != "list":
        assert "batchfleet " in shown.output.partition("Example")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_command_says(name):
    command = main.get_command(click.Context(main), name)
    assert command.name == name
    assert command.get_short_help_str(200) == COMMANDS[name]


def test_help_imports_no_command_and_no_library():
    code = (
        "import sys\n"
        "from batchfleet.ops.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'redis', 'numpy', 'torch', 'rq', 'rich', 'structlog', 'fsspec'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "infer" in done.stdout
    assert "LOADED []" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_imports_torch_or_rq(name):
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'safetensors', 'tokenizers', 'rq')))\n"
        "from batchfleet.ops.cli import main\n"
        f"main(['{name}', '--help'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_entry_point_is_the_command_line():
    assert importlib.import_module("batchfleet.ops.cli").main is main


# Errors


def test_an_error_is_one_line_with_a_remedy_and_exit_code_1(cli):
    told = cli("deploy", "echo", exit_code=1)
    assert told.stdout == ""
    assert told.stderr.splitlines()[0].startswith("error: store: ")
    assert "Traceback" not in told.stderr


def test_debug_shows_the_traceback(cli):
    told = CliRunner().invoke(main, ["--debug", "status"])
    assert told.exit_code == 1
    assert type(told.exception).__name__ == "SettingsError"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["infer"],
        ["infer", "echo"],
        ["deploy"],
        ["deploy", "echo/"],
        ["deploy", "set", "echo"],
        ["models", "import", "nothing"],
        ["up", "--workers", "many"],
        ["demo", "--texts", "some"],
    ],
)
def test_wrong_usage_has_exit_code_2(cli, arguments):
    assert "Usage:" in cli(*arguments, exit_code=2).stderr


def test_every_fault_of_the_settings_is_told(cli):
    told = cli("settings", "--lease-ms", "0", "--device", "toaster", exit_code=1).stderr
    assert "lease_ms" in told
    assert "toaster" in told


def test_a_program_without_a_server_refuses_to_start():
    told = CliRunner().invoke(main, ["consumer"])
    assert told.exit_code == 1
    assert "BATCHFLEET_REDIS_URL" in told.stderr


def test_a_server_that_is_away_is_told_as_such(cli):
    told = cli("status", "--redis-url", "redis://127.0.0.1:1/0", exit_code=1)
    assert told.stderr.startswith("error: server: ")


# Settings


def test_settings_show_value_and_origin(cli, namespace):
    shown = json.loads(cli("settings", "--json", "--lease-ms", "5000").stdout)
    assert (shown["lease_ms"]["value"], shown["lease_ms"]["origin"]) == (5000, "flag --lease-ms")
    assert shown["namespace"]["value"] == namespace
    assert shown["namespace"]["origin"] == "environment BATCHFLEET_NAMESPACE"
    assert shown["beat_ms"]["origin"] == "default"


def test_settings_come_from_a_file_too(cli, tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text("threads = 7\n")
    shown = json.loads(cli("settings", "--json", "--config", str(path)).stdout)
    assert (shown["threads"]["value"], shown["threads"]["origin"]) == (7, f"file {path}")


def test_settings_hide_passwords(cli):
    url = "redis://:hunter2@localhost/0"
    for arguments in (["settings"], ["settings", "--json"]):
        assert "hunter2" not in cli(*arguments, "--redis-url", url).output


# The store


def test_models_are_imported_listed_and_shown(cli):
    assert "empty" in cli("models", "list").stdout
    cli("models", "import", "echo")
    cli("models", "import", "echo")
    assert json.loads(cli("models", "list", "--json").stdout) == {
        "models": {"echo": ["1"]},
        "left_out": [],
    }
    shown = json.loads(cli("models", "show", "echo/1", "--json").stdout)
    assert (shown["model"], shown["version"], shown["runtime"]) == ("echo", "1", "echo")
    assert "runtime" in cli("models", "show", "echo").stdout


def test_a_folder_is_published_with_its_files(cli, tmp_path):
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    draft = {"model": "mine", "version": "2", "runtime": "echo"}
    (folder / "manifest.json").write_text(json.dumps(draft))
    (folder / "data" / "words.txt").write_text("hello")
    published = json.loads(cli("models", "publish", str(folder), "--json").stdout)
    assert (published["model"], published["version"]) == ("mine", "2")
    shown = json.loads(cli("models", "show", "mine", "--json").stdout)
    assert shown["files"]["data/words.txt"]["size_bytes"] == 5


def test_a_folder_without_a_manifest_is_refused(cli, tmp_path):
    assert "manifest.json" in cli("models", "publish", str(tmp_path), exit_code=1).stderr


# Deploying


def test_deploy_takes_the_newest_version_and_counts_epochs(cli, store_path):
    cli("models", "import", "echo")
    assert json.loads(cli("deploy", "echo", "--json").stdout) == {
        "model": "echo",
        "version": "1",
        "epoch": 1,
        "programs": [],
        "followed": True,
        "withdrawn": [],
    }
    assert json.loads(cli("deploy", "echo/1", "--json").stdout)["epoch"] == 2
    copy = json.loads((store_path / "echo" / "deploy.json").read_text())
    assert (copy["stable"], copy["epoch"], copy["tenants"]) == ("1", "2", ["default"])


def test_deploy_adds_a_tenant(cli, deployed_echo, executor, namespace):
    cli("deploy", "echo", "--tenant", "acme")
    assert executor.run(fleet.tenants(ModelKeys(namespace, "echo"))) == ["acme", "default"]


def test_limits_are_overridden_and_taken_back(cli, deployed_echo):
    cli("deploy", "set", "echo", "backlog=7", "timeout_ms=500")
    limits = json.loads(cli("settings", "--model", "echo", "--json").stdout)["limits"]
    assert (limits["backlog"]["override"], limits["backlog"]["in_force"]) == (7, 7)
    cli("deploy", "set", "echo", "timeout_ms=")
    limits = json.loads(cli("settings", "--model", "echo", "--json").stdout)["limits"]
    assert limits["timeout_ms"]["override"] is None
    assert limits["timeout_ms"]["in_force"] == TIMEOUT_MS_DEFAULT
    assert "backlog" in cli("settings", "--model", "echo").stdout


def test_a_limit_of_a_model_that_is_not_deployed_cannot_be_set(cli):
    assert "unknown_model (110)" in cli("deploy", "set", "echo", "backlog=1", exit_code=1).stderr


def test_buckets_with_waiting_entries_drain(cli, deployed_echo, redis_server, namespace):
    with client_of(redis_server) as client:
        (stream,) = client.scan_iter(f"{namespace}:{{echo}}:q:1:normal:0")
        client.xadd(stream, {"id": "x"})
    cli("deploy", "set", "echo", "buckets=8,16")
    status = json.loads(cli("status", "--json").stdout)
    assert status["models"][0]["versions"][0]["entries"] == {"0": 1, "8": 0, "16": 0}


def client_of(server):
    return redis.Redis.from_url(server.socket_url, socket_timeout=5.0, retry=None)


def test_undeploy_leaves_nothing_but_what_was_published(
    cli, deployed_echo, redis_server, namespace, store_path
):
    cli("deploy", "set", "echo", "buckets=8,16")
    cli("undeploy", "echo")
    with client_of(redis_server) as client:
        mark = ModelKeys(namespace, "echo").undeployed.encode()
        assert client.keys(f"{namespace}:*") == [mark]
        assert client.pttl(mark) > 0
    assert sorted(path.name for path in (store_path / "echo").iterdir()) == ["1"]
    assert "unknown_model" in cli("undeploy", "echo", exit_code=1).stderr


def test_undeploy_with_open_requests_wants_force(cli, deployed_echo, redis_server, namespace):
    with client_of(redis_server) as client:
        client.zadd(ModelKeys(namespace, "echo").due, {"default:x": 1})
    assert "--force" in cli("undeploy", "echo", exit_code=1).stderr
    shown = json.loads(cli("undeploy", "echo", "--force", "--json").stdout)
    assert (shown["model"], shown["forgotten_requests"]) == ("echo", 1)


# Looking


def test_status_of_an_empty_fleet_says_how_to_start(cli, namespace):
    shown = json.loads(cli("status", "--json").stdout)
    assert (shown["namespace"], shown["models"]) == (namespace, [])
    assert "batchfleet deploy" in cli("status").stdout


def test_status_shows_versions_workers_and_refusals(cli, deployed_echo, executor, namespace):
    keys = ModelKeys(namespace, "echo")
    lanes = json.dumps({"1": {"state": "refused", "reason": "it needs cuda"}})
    assert executor.run(membership.join(keys, "w-1", 60_000, {"lanes": lanes, "room": "64"}))
    (model,) = json.loads(cli("status", "--json").stdout)["models"]
    assert (model["model"], model["intake"], model["open_requests"]) == ("echo", "open", 0)
    assert model["versions"][0]["ready_workers"] == 0
    assert model["workers"][0]["versions"]["1"]["reason"] == "it needs cuda"
    shown = cli("status").stdout
    assert "it needs cuda" in shown
    assert "no worker serves it" in shown


def test_a_record_that_cannot_be_read_does_not_hide_the_fleet(
    cli, deployed_echo, redis_server, namespace
):
    with client_of(redis_server) as client:
        client.hset(ModelKeys(namespace, "echo").deploy, "version:1", "{")
    assert "cannot be served" in cli("status").stdout


def test_a_submitted_request_waits_for_a_router(cli, deployed_echo):
    submitted = cli("submit", "echo", "hello", "--id", "mine-1").stdout.strip()
    assert submitted == "mine-1"
    assert "mine-1" in cli("result", "echo", "mine-1", "--timeout", "0.1", exit_code=1).stderr
    told = cli("requests", "show", "echo", "mine-1", exit_code=1).stderr
    assert "unknown_request (112)" in told


def test_where_nothing_is_deployed_at_all_the_server_may_have_lost_it(cli):
    told = cli("infer", "echo", "hello", exit_code=1).stderr
    assert "unavailable (202)" in told
    assert "batchfleet deploy echo/VERSION" in told
