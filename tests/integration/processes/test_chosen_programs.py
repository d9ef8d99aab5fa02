"""Nothing in Redis or in a store chooses a program of a worker, and its secrets stay its own."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.commands import batchfleet, staying
from support.fleet import draft_of, running_fleet, until
from support.traps import Trap, forge_built

from batchfleet import Client
from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.models.importing import builtin_draft
from batchfleet.models.store import Store
from batchfleet.wire.deployment import VersionRecord

PATIENCE_S = 60
LOCKED = "env:" + "7" * 64
SPY = """\
import os
from pathlib import Path
from batchfleet import Model

class Spy(Model):
    def predict(self, rows, context):
        own = dict(os.environ)
        command = Path("/proc/self/cmdline").read_bytes().decode()
        return [{"seen": repr(own) + command} for row in rows]
"""


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    cache = str(tmp_path / "cache")
    with running_fleet(redis_server, namespace, tmp_path, cache=cache) as fleet:
        yield fleet


@pytest.fixture
def trap(tmp_path):
    return Trap(tmp_path / "environment", tmp_path / "sprung")


def refusal(fleet, model, told):
    """Why a worker refuses a model, once that has to do with `told`."""

    def said():
        states = [state for lanes in fleet.lanes(model).values() for state in lanes.values()]
        reasons = [state.get("reason", "") for state in states]
        return next((reason for reason in reasons if told in reason), None)

    return until(said, f"a worker refuses {model} with {told!r}: {fleet.lanes(model)}")


def write_record(fleet, model, **changes):
    """What somebody with the server's rights writes into the deploy record, as a new deploy."""
    keys = fleet.keys(model)
    raw = json.loads(fleet.server.hget(keys.deploy, "version:1"))
    raw |= {**changes, "deployed": "again"}
    fleet.server.hset(keys.deploy, mapping={"version:1": json.dumps(raw), "nonce": "again"})
    fleet.server.hincrby(keys.deploy, "epoch", 1)


@pytest.mark.parametrize("builtin", ["echo", "noop"])
def test_a_record_in_redis_starts_no_program(fleet, trap, builtin):
    """X1, T18 (record): `HSET …:deploy version:1` with a folder of the writer's."""
    consumer = fleet.consumer()
    fleet.deploy(draft_of(builtin, "m"))
    fleet.wait_served("m")
    write_record(fleet, "m", environment=str(trap.folder))
    refusal(fleet, "m", "is not allowed on this worker")
    assert not trap.was_sprung
    told = consumer.events("lane.refused")[-1]
    assert str(trap.folder) in told["reason"]
    write_record(fleet, "m", environment="")
    fleet.wait_served("m")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lineage": "0" * 16}, "lineage"),
        ({"lineage": ""}, "lineage"),
        ({"runtime": "noop"}, "runtime 'echo', deployed 'noop'"),
        ({"device": "cpu"}, "device 'any', deployed 'cpu'"),
        ({"signature": {"inputs": [], "outputs": []}}, "another signature"),
    ],
)
def test_a_record_that_is_not_of_the_manifest_is_refused_with_the_reason(fleet, changes, told):
    """X1 (record): for a built-in runtime in the worker's own Python."""
    fleet.consumer()
    fleet.deploy(draft_of("echo", "m"))
    fleet.wait_served("m")
    write_record(fleet, "m", **changes)
    assert "deploy it again" in refusal(fleet, "m", told)


def test_a_manifest_of_the_store_starts_no_program(fleet, trap):
    """X1, T18 (manifest): for a built-in runtime, deployed under `allow_code none`."""
    fleet.consumer(allow_code="none")
    fleet.deploy(draft_of("noop", "m", environment=str(trap.folder)))
    refusal(fleet, "m", f"--allow-environments {trap.folder}")
    assert not trap.was_sprung


def test_a_forged_cache_starts_no_program(fleet, tmp_path):
    """X1, X11 (cache): a stamp and an interpreter that others may have put there."""
    trap = forge_built(tmp_path / "cache", LOCKED, tmp_path / "sprung")
    (tmp_path / "cache").chmod(0o777)
    fleet.consumer()
    fleet.deploy(draft_of("noop", "m", environment=LOCKED))
    refusal(fleet, "m", "every user can write to")
    assert not trap.was_sprung


def run(fleet, *arguments, exit_code=1, **options):
    done = batchfleet("models", *arguments, exit_code=exit_code, cwd=fleet.folder, **options)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_trying_a_version_of_a_store_starts_no_program_either(fleet, trap, tmp_path):
    """X1 (manifest, cache): `models try` and `models environment show`."""
    forged = forge_built(tmp_path / "cache", LOCKED, tmp_path / "forged")
    (tmp_path / "cache").chmod(0o777)
    for model, environment in (("m", str(trap.folder)), ("n", LOCKED)):
        draft = replace(builtin_draft("noop"), model=model, environment=environment)
        fleet.store.publish(draft, {})
    place = ["--store", fleet.store.root, "--cache", str(tmp_path / "cache")]
    assert "--allow-environments" in run(fleet, "try", "m", "--text", "x", *place)
    assert "--allow-environments" in run(fleet, "environment", "show", "m", *place)
    assert "every user can write to" in run(fleet, "try", "n", "--text", "x", *place)
    assert "every user can write to" in run(fleet, "environment", "show", "n", *place)
    assert not trap.was_sprung
    assert not forged.was_sprung
    allowed = ["--allow-environments", str(trap.folder)]
    run(fleet, "try", "m", "--text", "x", *place, *allowed)
    assert trap.was_sprung


def test_an_environment_is_built_in_no_cache_that_others_may_write(fleet, tmp_path):
    """X11 (cache): `models environment build` runs what it finds there."""
    lock = tmp_path / "requirements.lock"
    lock.write_text("--no-index\nnothing==1 --hash=sha256:" + "0" * 64 + "\n")
    model = tmp_path / "model.py"
    model.write_text(SPY)
    wishes = PublishOptions(model="spy", version="1", requirements=lock)
    fleet.store.publish(*draft_of_file(model, wishes))
    cache = tmp_path / "open"
    cache.mkdir()
    cache.chmod(0o777)
    place = ["--store", fleet.store.root, "--cache", str(cache)]
    assert "the cache cannot be there" in run(fleet, "environment", "build", "spy", *place)
    assert not list(cache.rglob("python"))


def test_a_model_sees_nothing_of_the_servers_address(fleet):
    """X2, T18: neither in its environment nor in its command line; what is named may pass."""
    fleet.deploy_code(SPY, "spy")
    fleet.consumer(allow_code="own", device_environment="BATCHFLEET_NAMESPACE")
    fleet.router()
    fleet.wait_until_served("spy")
    (seen,) = fleet.ask("spy").outputs[0]["data"]
    assert fleet.url not in seen
    assert "REDIS" not in seen
    assert "BATCHFLEET_NAMESPACE" in seen
    assert "PATH" in seen


def test_no_process_of_a_fleet_has_the_servers_address_in_its_command_line(fleet):
    """X2, T14: everybody on the machine can read command lines."""
    fleet.router()
    fleet.consumer()
    fleet.deploy(draft_of("echo", "m"))
    fleet.wait_served("m")
    processes = [psutil.Process(program.pid) for program in fleet.programs]
    processes += [child for one in processes for child in one.children(recursive=True)]
    lines = [" ".join(process.cmdline()) for process in processes]
    assert any("consumer.device" in line for line in lines)
    assert not any("redis:" in line or "unix:" in line for line in lines)


@pytest.mark.slow
def test_a_class_that_is_tried_sees_no_secret(fleet):
    """X2: `models try FILE.py` runs it in a process of its own, at the same terminal."""
    (fleet.folder / "spy.py").write_text(SPY)
    environ = {"PATH": os.defpath, "BATCHFLEET_REDIS_URL": "redis://:hidden@host", "MY_KEY": "mine"}
    said = run(fleet, "try", "spy.py", "--text", "x", exit_code=0, env=environ)
    assert "PATH" in said
    assert not any(word in said for word in ("hidden", "MY_KEY"))
    more = ["--device-environment", "MY_*"]
    assert "mine" in run(fleet, "try", "spy.py", "--text", "x", *more, exit_code=0, env=environ)


def test_a_record_keeps_what_a_manifest_says():
    """X1: what is compared is in the record at all."""
    manifest = builtin_draft("device_stub")
    record = VersionRecord.from_wire(manifest.record().to_wire(), {})
    assert (record.signature, record.runtime) == (manifest.signature, manifest.runtime)


@pytest.mark.slow
def test_a_fleet_of_up_starts_no_program_either(trap, tmp_path, monkeypatch):
    """X1, X2 (manifest): `up` deploys what the store holds."""
    folder = tmp_path / "up"
    folder.mkdir()
    monkeypatch.chdir(folder)
    # A file that an own module's name would find in the folder that `up` was started in.
    (folder / "redis.py").write_text(f"open({str(trap.mark)!r}, 'w').close()\n")
    store = Store("store")
    store.publish(replace(builtin_draft("noop"), environment=str(trap.folder)), {})
    store.publish(builtin_draft("echo"), {})
    program = Path(sys.executable).with_name("batchfleet")
    log = tmp_path / "log"
    with staying("up", log=log, program=[program]) as process:
        facts = json.loads(process.stdout.readline())
        children = psutil.Process(process.pid).children(recursive=True)
        own = [" ".join(c.cmdline()) for c in children if c.pid != facts["pids"]["server"]]
        assert not [line for line in own if "redis:" in line or "unix:" in line]
        until(lambda: "is not allowed on this worker" in log.read_text(), "noop is refused")
        assert not trap.was_sprung


@pytest.mark.slow
def test_a_class_that_is_developed_sees_no_secret(tmp_path):
    """X2: `dev FILE.py`; and no environment that the file alone names is run."""
    trap = Trap(tmp_path / "environment", tmp_path / "sprung")
    (tmp_path / "spy.py").write_text(SPY)
    environ = {"PATH": os.defpath, "BATCHFLEET_TENANT": "hidden", "MY_KEY": "mine"}
    (tmp_path / "named.py").write_text(f"MANIFEST = {{'environment': '{trap.folder}'}}\n" + SPY)
    log = tmp_path / "log"
    for name, told in (("spy.py", ""), ("named.py", "is not allowed on this worker")):
        with staying("dev", name, log=log, cwd=tmp_path, env=environ) as process:
            facts = json.loads(process.stdout.readline())
            if told:
                until(lambda told=told: told in log.read_text(), "it is refused")
                continue
            with Client(facts["redis_url"], tenant="hidden") as client:
                seen = repr(client.infer(facts["model"], "x").outputs)
            assert "PATH" in seen
            assert not [word for word in ("hidden", "MY_KEY", "redis:", "unix:") if word in seen]
    assert not trap.was_sprung
