"""Versions that are loaded, and unloaded, beside others that serve."""

import secrets

import psutil
import pytest
from support.asking import asked_all_the_time
from support.fleet import check_all_ok, draft_of, limits, until

from batchfleet.broker import fleet as records
from batchfleet.wire.canary import WorkerChoice

ECHO = "echo"
LOAD_S = 3.0

MODEL = """\
import hashlib
import threading
from time import monotonic
from batchfleet import Model

class Own(Model):
    def load(self, context):
        self.version = context.version
        self.weights = bytearray(b"x") * {held_bytes}
        until = monotonic() + {load_s}
        while monotonic() < until:
            hashlib.sha256(self.weights[:100_000]).digest()

    def predict(self, rows, context):
        threading.Event().wait({predict_s})
        return [{{"version": self.version}} for row in rows]
"""


def deploy(fleet, version, load_s=0.0, held_bytes=1000, predict_s=0.0):
    text = MODEL.format(load_s=load_s, held_bytes=held_bytes, predict_s=predict_s)
    fleet.deploy_code(text, "own", version)


def withdraw(fleet, version):
    """Take an earlier version out of service, once it has no work."""
    keys = fleet.keys("own")
    streams = [name for name in fleet.queues("own") if f":{version}:" in name]
    command = records.withdraw(keys, version, streams)
    until(lambda: fleet.executor.run(command) == 0, f"{version} has no work")


def give_to(fleet, version, choice):
    """Say which workers load a version."""
    field = {f"workers:{version}": choice.to_wire()}
    nonce = secrets.token_hex(4)
    assert fleet.executor.run(records.configure(fleet.keys("own"), field, (), nonce)) > 0


def states(fleet):
    (lanes,) = fleet.lanes("own").values()
    return {version: lane["state"] for version, lane in lanes.items()}


def device_processes(worker):
    return psutil.Process(worker.pid).children()


def resident_bytes(worker):
    processes = [psutil.Process(worker.pid), *device_processes(worker)]
    return sum(process.memory_info().rss for process in processes)


@pytest.fixture
def worker(fleet):
    """A worker that serves echo, and a router."""
    draft = draft_of("echo", ECHO, limits=limits(max_batch_size=4))
    (found,) = fleet.bring_up(draft, allow_code="own")
    return found


def test_a_long_load_keeps_nobody_waiting(fleet, worker):
    with asked_all_the_time(fleet, ECHO) as waits:
        deploy(fleet, "1", load_s=LOAD_S)
        fleet.wait_until_served("own")
        asked_while_loading = len(waits)
    assert asked_while_loading > 20
    assert max(waits) < LOAD_S / 2
    assert len(device_processes(worker)) == 2


@pytest.mark.slow
def test_versions_in_turn_leave_neither_processes_nor_memory(fleet, worker):
    held = []
    for version in map(str, range(1, 13)):
        deploy(fleet, version, held_bytes=16_000_000)
        fleet.wait_until_served("own", version)
        if version != "1":
            withdraw(fleet, str(int(version) - 1))
        until(lambda: states(fleet) == {version: "ready"}, f"only {version} is left")  # noqa: B023
        until(lambda: len(device_processes(worker)) == 2, "one process beside that of echo")
        check_all_ok([fleet.ask("own"), fleet.ask(ECHO)])
        held.append(resident_bytes(worker))
    assert max(held[3:]) < held[2] + 16_000_000


def test_what_a_version_holds_is_answered_before_it_goes(fleet, worker):
    deploy(fleet, "1", predict_s=0.2)
    deploy(fleet, "2")
    fleet.wait_until_served("own", "1")
    fleet.wait_until_served("own", "2")
    apart = [{"version": "1", "parameters": f'{{"n": {at}}}'} for at in range(8)]  # no batch
    asked = fleet.submit_all("own", apart)
    until(lambda: fleet.pending("own") == len(asked), "all are taken")
    give_to(fleet, "1", WorkerChoice(named=frozenset(fleet.living("own")), excludes=True))
    until(lambda: "1" not in states(fleet), "it is not loaded any more")
    replies = fleet.replies("own", asked)
    check_all_ok(replies)
    assert fleet.pending("own") == 0
    assert states(fleet) == {"2": "ready"}
