"""What the server does: F8, F13, F14, F15, F17 (the server's part), F20, F21 and F23."""

import os
import signal
from functools import partial

import redis

from batchfleet.broker.errors import UnreachableError
from tests.support.fleet import until

from .arena import LEASE_MS, MODEL
from .moments import LONG_WORK, WORK
from .provoking import provoked
from .run import Run

PROBES = 8
LOG_LINES_MAX = 20
# This much later at the latest, service is as before.
RESUMED_S = 2.0
STALL_MS = 2 * LEASE_MS
_BURST = 12
_SAME = 100
_TIMES = 3
_FEW_CLIENTS = 4
_SHORT_MS = 6_000


def runs():
    """All of them."""
    return [
        Run(name="f8.restart.idle", play=partial(restart, loaded=False)),
        Run(name="f8.restart.loaded", play=partial(restart, loaded=True), quick=True),
        Run(name="f8.restart.always", play=partial(restart, loaded=True, sync="always")),
        Run(name="f8.down", play=partial(restart, loaded=True, down_s=2.5), quick=True),
        Run(name="f13.flushall", play=flush_all, quick=True),
        Run(name="f13.delete-work", play=partial(remove, what=delete_work)),
        Run(name="f13.destroy-work-group", play=partial(remove, what=destroy_work_group)),
        Run(name="f13.destroy-ingress-group", play=partial(remove, what=destroy_ingress_group)),
        Run(name="f14.memory-full", play=memory_full, quick=True),
        Run(name="f15.disk-full", play=disk_full, quick=True),
        Run(name="f17.client-pause", play=partial(stall, how=pause_clients)),
        Run(name="f17.server-frozen", play=partial(stall, how=freeze_server), quick=True),
        Run(name="f20.script-flush", play=script_flush, quick=True),
        Run(name="f21.too-many-clients", play=too_many_clients, quick=True),
        Run(name="f21.clients-killed", play=kill_clients),
        Run(name="f23.same-id", play=same_id, quick=True, requests_min=1),
    ]


def steady(stage):
    return [program for programs in stage.arena.steady.values() for program in programs]


def check_undisturbed(stage, living):
    """All programs run on, under the names that they had."""
    assert all(program.is_running() for program in steady(stage))
    assert stage.arena.living() == living, "a worker was buried"


class LogWatch:
    """Counts what the programs that stay up say from now on."""

    def __init__(self, stage):
        self._programs = steady(stage)
        self._before = [self._lines(program) for program in self._programs]

    @staticmethod
    def _lines(program):
        return program.log_text().count("\n")

    def check_quiet(self):
        for program, before in zip(self._programs, self._before, strict=True):
            said = self._lines(program) - before
            assert said <= LOG_LINES_MAX, f"the {program.kind} wrote {said} lines"


def restart(stage, *, loaded, sync="everysec", down_s=0.0):
    """The server is killed and comes back on the same data."""
    arena = stage.arena
    arena.config("appendfsync", sync)
    stage.load.submit(_BURST)
    if loaded:
        stage.load.submit(_BURST, switch=WORK)
    else:
        stage.load.collect()
    quiet = LogWatch(stage)
    stage.fault("the server is killed")
    arena.kill_server()
    stage.load.pause(down_s)
    arena.server.start()
    wait_reached(arena)
    stage.load.submit(PROBES)
    stage.load.collect()
    quiet.check_quiet()
    assert all(program.is_running() for program in steady(stage))


def wait_reached(arena):
    """Have the test's own connections reach the server again."""

    def answers():
        try:
            return arena.living() is not None and arena.fleet.lanes(MODEL) is not None
        except (redis.ConnectionError, redis.ResponseError, UnreachableError):
            return False

    until(answers, "the server is reached again")


def flush_all(stage):
    """Everything is gone at once; the operator deploys again."""
    stage.load.submit(_BURST, switch=LONG_WORK)
    quiet = LogWatch(stage)
    stage.fault("FLUSHALL")
    stage.arena.fleet.server.flushall()
    stage.history.tell("wiped")
    stage.arena.deploy()
    # That a router reads again shows in the answers alone: Redis 7 lists no idle reader.
    stage.arena.fleet.wait_served(MODEL)
    stage.load.pause(RESUMED_S)
    stage.load.forget()
    stage.load.submit(PROBES)
    stage.load.collect()
    quiet.check_quiet()


def delete_work(fleet):
    fleet.server.delete(*fleet.queues(MODEL))


def destroy_work_group(fleet):
    for stream in fleet.queues(MODEL):
        fleet.server.xgroup_destroy(stream, "worker")


def destroy_ingress_group(fleet):
    fleet.server.xgroup_destroy(fleet.keys(MODEL).ingress("default"), "router")


def remove(stage, *, what):
    """Somebody else removes a stream or group; requests on their way may end by their deadline."""
    expected = ("ok", "deadline_exceeded", "unavailable")
    fleet = stage.arena.fleet
    (worker,) = stage.arena.steady["consumer"]
    gate = stage.gate()
    pid = worker.device_pid()
    stage.load.submit(_BURST, switch=gate.switch, expected=expected, timeout_ms=_SHORT_MS)
    provoked(lambda: gate.has_begun(pid), "work is under way")
    quiet = LogWatch(stage)
    stage.fault(what.__name__)
    what(fleet)
    gate.open()
    stage.load.pause(RESUMED_S)
    stage.load.submit(PROBES, timeout_ms=_SHORT_MS)
    stage.load.collect()
    quiet.check_quiet()


def memory_full(stage):
    """The server is at `maxmemory`: what was accepted is finished, nothing new gets in."""
    fleet = stage.arena.fleet
    stage.load.submit(_BURST, switch=LONG_WORK)
    provoked(lambda: not fleet.ingress_length(MODEL), "all are accepted")
    stage.fault("maxmemory")
    stage.arena.config("maxmemory", 1)
    stage.load.submit(1)
    assert stage.load.refused == 1, "the server took an entry although it was full"
    stage.load.collect()
    stage.arena.config("maxmemory", 0)
    # Routers look at the server's memory once in a `refresh_ms`, and refuse until then.
    stage.load.pause(RESUMED_S)
    stage.load.submit(PROBES)


def disk_full(stage):
    """The server cannot save and refuses all writes for longer than a lease."""
    arena, living = stage.arena, stage.arena.living()
    stage.load.submit(_BURST, switch=LONG_WORK)
    provoked(lambda: not arena.fleet.ingress_length(MODEL), "all are accepted")
    # A folder in the place of the snapshot: it cannot be replaced, whoever the server runs as.
    blocked = arena.server.folder / "dump.rdb"
    blocked.mkdir()
    stage.fault("MISCONF")
    arena.config("save", "3600 1")
    arena.fleet.server.bgsave()
    provoked(lambda: _save_status(arena) == "err", "saving has failed")
    stage.load.submit(1)
    assert stage.load.refused == 1, "the server took an entry although it cannot save"
    stage.load.pause(STALL_MS / 1000)
    arena.config("save", "")
    blocked.rmdir()
    stage.load.submit(PROBES)
    stage.load.collect()
    check_undisturbed(stage, living)


def _save_status(arena):
    return arena.fleet.server.info("persistence")["rdb_last_bgsave_status"]


def pause_clients(stage):
    stage.arena.fleet.server.execute_command("CLIENT", "PAUSE", STALL_MS, "ALL")


def freeze_server(stage):
    pid = stage.arena.server.pid
    os.kill(pid, signal.SIGSTOP)
    stage.load.pause(STALL_MS / 1000)
    os.kill(pid, signal.SIGCONT)


def stall(stage, *, how):
    """The server says nothing for two leases; nobody is buried for it."""
    arena = stage.arena
    arena.ensure(workers=2)
    living = arena.living()
    stage.load.submit(_BURST, switch=LONG_WORK)
    how(stage)
    stage.load.submit(PROBES)
    stage.load.collect()
    check_undisturbed(stage, living)


def script_flush(stage):
    """The server forgets all scripts, again and again."""
    for _ in range(_TIMES):
        stage.load.submit(_BURST, switch=WORK)
        stage.arena.fleet.server.script_flush()
    stage.load.submit(PROBES)


def too_many_clients(stage):
    """All connections end, and most of them are not let in again for a while."""
    stage.load.submit(_BURST, switch=WORK)
    quiet = LogWatch(stage)
    stage.fault("maxclients")
    server = stage.arena.fleet.server
    stage.arena.config("maxclients", _FEW_CLIENTS)
    server.client_kill_filter(_type="normal", skipme=True)
    stage.load.pause(STALL_MS / 1000)
    stage.arena.config("maxclients", 10_000)
    wait_reached(stage.arena)
    stage.load.submit(PROBES)
    stage.load.collect()
    quiet.check_quiet()


def kill_clients(stage):
    """All connections end three times within three seconds."""
    for _ in range(_TIMES):
        stage.load.submit(_BURST, switch=WORK)
        stage.fault("CLIENT KILL")
        stage.arena.fleet.server.client_kill_filter(_type="normal", skipme=True)
        stage.load.pause(1.0)
    wait_reached(stage.arena)
    stage.load.submit(PROBES)


def same_id(stage):
    """One id is submitted a hundred times, to two routers: computed once, answered once."""
    stage.arena.ensure(routers=2)
    name = f"{stage.prefix}-same"
    for _ in range(_SAME):
        stage.load.submit_one(name, WORK)
    stage.load.collect()
    for _ in range(_SAME):
        stage.load.submit_one(name, WORK)
