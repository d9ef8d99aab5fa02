"""A server, a router and a worker that stay up from run to run, and the stage of one run on them.

A run starts its victims beside them, and whatever it broke is mended before the next one.
"""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from tests.support.fleet import Fleet, until
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy
from tests.support.server import program_of

from .history import History, read_history
from .load import Load
from .provoking import Gate

MODEL = "told"
LEASE_MS, BEAT_MS = 1500, 300
SETTINGS = {
    "lease_ms": LEASE_MS,
    "beat_ms": BEAT_MS,
    "recover_ms": BEAT_MS,
    "refresh_ms": 200,
    "grace_ms": 8_000,
    "allow_code": "own",
}
LIMITS = {"max_batch_size": 4, "predict_ms": 10_000, "preprocess_ms": 5_000}
# What each server promises with the append-only file that `EmbeddedServer` sets, by measurement.
PROMISE = (
    "append-only file, appendfsync everysec: nothing acknowledged is lost when the server's "
    "process dies; up to 1 s (2 s on a slow disk) when the machine does. After FLUSHALL, DEL or "
    "XGROUP DESTROY what was there is gone."
)
_SETTLE_S = 20.0
_STOPPED = "T"


class LeftOverError(AssertionError):
    """Something of a run has not come to its end."""


@dataclass
class Arena:
    """One server and its fleet. All calls come from one thread, which outlives the processes."""

    kind: str
    folder: Path

    def __post_init__(self):
        data = self.folder / "data"
        data.mkdir(parents=True)
        self.server = EmbeddedServer(
            ServerOptions(
                program=program_of(self.kind), port=free_port(), folder=data, append_only=True
            )
        )
        self.computed = self.folder / "computed.jsonl"
        self.fleet = None
        self.steady = {"router": [], "consumer": []}
        self.proxies = []

    @property
    def port(self):
        return self.server.port

    def open(self):
        self.server.start()
        self.fleet = Fleet(
            url=self.server.socket_url, namespace="f", folder=self.folder, settings=SETTINGS
        )
        self.record = self._publish().record()
        self.deploy()
        return self

    def _publish(self):
        """The test's own model, allowed because nobody else may write it."""
        text = Path(__file__).with_name("told_model.py").read_text()
        text = text.replace("HISTORY", str(self.computed))
        return self.fleet.publish_code(text, MODEL, class_name="Told", limits=LIMITS)

    def deploy(self):
        """Put the model in service, as an operator does after the server has lost everything."""
        self.fleet.deploy_record(MODEL, self.record)

    def close(self):
        if self.fleet is not None:
            for program in self.fleet.programs:
                _end(program)
            self.fleet.close()
        for proxy in self.proxies:
            proxy.stop()
        self.server.stop()

    @property
    def keys(self):
        return self.fleet.keys(MODEL)

    # Programs.

    def ensure(self, routers=1, workers=1):
        """Have so many programs run undisturbed; what is more is stopped in good order."""
        wanted = {"router": routers, "consumer": workers}
        fresh = []
        for kind, programs in self.steady.items():
            programs[:] = [program for program in programs if program.is_running()]
            while len(programs) < wanted[kind]:
                programs.append(self.fleet.start(kind))
                fresh.append(programs[-1])
        for program in fresh:
            program.wait_until_ready()
        for kind, programs in self.steady.items():
            while len(programs) > wanted[kind]:
                programs.pop().stop()
        self.wait_served(workers)

    def check_alive(self):
        """No program that stays up has ended, but by a kill of ours."""
        for kind, programs in self.steady.items():
            for program in programs:
                code = program.process.poll()
                assert code in (None, -signal.SIGKILL), f"the {kind} ended by itself: {code}"

    def wait_served(self, workers=1):
        self.fleet.wait_served(MODEL, workers=workers)
        self.fleet.wait_routed(MODEL)

    def living(self):
        return self.fleet.living(MODEL)

    # The server.

    def config(self, name, value):
        self.fleet.server.config_set(name, value)

    def kill_server(self):
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()

    def mend(self):
        """Undo what a run may have done to the server."""
        for name, value in {"maxmemory": 0, "save": "", "maxclients": 10_000}.items():
            self.config(name, value)

    # A run.

    @contextmanager
    def stage(self, name, folder):
        """The stage of one run; at its end everything must have come to an end as well."""
        folder.mkdir(parents=True)
        stage = Stage(self, name, folder)
        try:
            yield stage
            stage.settle()
        finally:
            stage.close()

    def settled(self):
        """What is still on its way, by name; empty once all has come to its end."""
        fleet = self.fleet
        left = {
            "ingress": fleet.ingress_length(MODEL),
            "open": fleet.open_requests(MODEL),
            "waiting": fleet.waiting(MODEL),
            "lost workers": fleet.server.scard(self.keys.lost),
        }
        return {name: count for name, count in left.items() if count}


class Stage:
    """What a run does things with: its load, its history, its victims."""

    def __init__(self, arena, name, folder):
        self.arena = arena
        self.name = name
        self.folder = folder
        self.history = History(folder / "driver.jsonl")
        self.prefix = f"{name}-{os.urandom(3).hex()}"
        self.load = Load(arena.fleet.url, arena.keys, self.history, self.prefix)
        self.victims = []
        self.proxies = []
        self.gates = []

    # What is broken.

    def fault(self, name):
        """Tell that something is broken on purpose, right before it is."""
        self.history.tell("fault", name=name)

    def gate(self):
        """Work that is under way for as long as this run wants it to be."""
        gate = Gate(self.folder.resolve() / f"gate-{len(self.gates)}", self.arena.computed)
        self.gates.append(gate)
        return gate

    def victim(self, kind, faults="", **settings):
        """Start a program that may be ill-treated, and wait until it is ready."""
        program = self.arena.fleet.start(kind, faults=faults, **settings)
        self.victims.append(program)
        program.wait_until_ready()
        if kind == "consumer":
            until(lambda: program.facts["worker"] in self.arena.living(), "the victim lives")
        return program

    def proxied(self, kind, faults=""):
        """A victim that reaches the server through a proxy; returns both."""
        proxy = FaultProxy(self.arena.port, self.arena.server.password).start()
        self.proxies.append(proxy)
        return self.victim(kind, faults, redis_url=proxy.url), proxy

    def wait_until_stopped(self, program):
        """Wait until a process has stopped itself."""
        stat = Path(f"/proc/{program.pid}/stat")
        until(
            lambda: stat.read_text().rpartition(")")[2].split()[0] == _STOPPED,
            f"{program.kind} stands still",
        )

    def wait_until_buried(self, program):
        until(
            lambda: program.facts["worker"] not in self.arena.living(),
            f"{program.facts['worker']} is buried",
        )

    # The end.

    def settle(self):
        """Collect what is open, read everything again, and see that nothing is left."""
        self.load.collect()
        give_up = monotonic() + _SETTLE_S
        while left := self.arena.settled():
            if monotonic() > give_up:
                raise LeftOverError(f"still there after {_SETTLE_S:g} s: {left}")
            self.load.pause()
        self.load.reread()
        self.arena.check_alive()

    def close(self):
        for gate in self.gates:
            gate.open()
        for proxy in self.proxies:
            with suppress(AssertionError):
                proxy.admit()
                proxy.thaw()
        for program in self.victims:
            _end(program)
        for proxy in self.proxies:
            proxy.stop()
        self.load.close()
        self.history.close()
        self._keep()

    def _keep(self):
        """Copy what the model and the programs told into the run's own folder."""
        mine = [line for line in read_history(self.arena.computed) if self._is_mine(line)]
        history = History(self.folder / "computed.jsonl")
        history.copy(mine)
        history.close()
        for program in self.victims:
            shutil.copyfile(program.log_path, self.folder / f"victim-{program.log_path.name}")

    def _is_mine(self, line):
        return line["id"].startswith(f"{self.prefix}-")


def _end(program):
    """End a program whatever state it is in: in good order if it obeys soon."""
    if not program.is_running():
        return
    program.signal(signal.SIGCONT)
    try:
        program.stop(timeout_s=3)
    except subprocess.TimeoutExpired:
        program.kill()


def keep_logs(arena, folder):
    """Copy the logs of the programs that stay up, which a failed run may need."""
    for programs in arena.steady.values():
        for program in programs:
            with suppress(OSError):
                shutil.copyfile(program.log_path, folder / f"steady-{program.log_path.name}")
