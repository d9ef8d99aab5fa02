"""The server is frozen, killed or stopped under load, and comes back; nothing else is restarted."""

from dataclasses import dataclass
from time import perf_counter

from tests.support.cpu_time import process_cpu_s
from tests.support.fleet import draft_of

from .mortal_server import mortal_server, served_fleet
from .pause import pause_s
from .promise import Promise, at_least, at_most, equals
from .steady_load import OK, LoadPlan, SteadyLoad, acknowledged, outcomes, reply_counts

MODEL = "outage"
_RATE_PER_S = 200.0
_FROZEN_S = 4.2
_WARM_S, _AFTERWARDS_S = 3.0, 6.0
_RESUME_S = 5.0
_NEVER_S = float("inf")
# How the server ends, and for how long it is away.
_OUTAGES = (("kill", 0.5), ("kill", 2.0), ("kill", 10.0), ("kill", 60.0), ("stop", 2.0))
_OUTAGES_QUICK = (("kill", 2.0), ("stop", 0.5))
# Longer than the longest outage and what follows: the fleet owes every one of them its answer.
_PLAN = LoadPlan(model=MODEL, rate_per_s=_RATE_PER_S, timeout_ms=120_000)


def frozen_server(*, quick):
    """The server is silent for longer than a lease, again and again, and nobody is buried."""
    times = 1 if quick else 3
    with mortal_server() as server, served_fleet(server, draft_of("echo", MODEL)) as fleet:
        before = fleet.living(MODEL)
        with SteadyLoad(fleet, _PLAN) as load:
            for _ in range(times):
                pause_s(_WARM_S)
                server.freeze()
                pause_s(_FROZEN_S)
                server.thaw()
            pause_s(_AFTERWARDS_S)
            load.stop()
        fleet.wait_idle(MODEL)
        events = {
            name: sum(len(worker.events(name)) for worker in fleet.workers)
            for name in ("worker.buried", "worker.fenced")
        }
        after, counts = fleet.living(MODEL), reply_counts(fleet, load.requests)
    return [
        equals(
            f"server frozen {times} × {_FROZEN_S} s at {_RATE_PER_S:g} requests/s: "
            "events worker.buried",
            events["worker.buried"],
            0,
        ),
        equals("… events worker.fenced", events["worker.fenced"], 0),
        equals("… names of the living are as before", after == before, True),
        _one_answer_each(load.requests, counts),
    ]


def _one_answer_each(requests, counts):
    known = len(acknowledged(requests))
    return equals(
        f"… acknowledged requests with one answer ({outcomes(requests)})",
        counts[1],
        known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What one outage showed.

    Attributes:
        resumed_s: from the server's return to the first answer to a request sent after it.
        log_lines: of the program that wrote most, from the outage to the end.
        cpu_share: of the process that used most while the server was down; 1.0 is a core.
        busiest: which process that was.
    """

    how: str
    down_s: float
    resumed_s: float
    log_lines: int
    cpu_share: float
    busiest: str
    requests: list
    counts: dict


def outages(*, quick):
    """Every outage in the same fleet, one after the other."""
    with mortal_server() as server, served_fleet(server, draft_of("echo", MODEL)) as fleet:
        names = fleet.living(MODEL)
        found = [
            _outage(server, fleet, how, down_s)
            for how, down_s in (_OUTAGES_QUICK if quick else _OUTAGES)
        ]
        restarted = [program.kind for program in fleet.programs if not program.is_running()]
        same = fleet.living(MODEL) == names
    promises = [promise for outage in found for promise in _promises(outage)]
    return [
        *promises,
        equals("… programs that ended in all outages", len(restarted), 0),
        equals("… names of the living are as before", same, True),
    ]


def _outage(server, fleet, how, down_s):
    with SteadyLoad(fleet, _PLAN) as load:
        pause_s(_WARM_S)
        lines = {program: _line_count(program) for program in fleet.programs}
        end_server = server.kill if how == "kill" else server.stop
        pids = _pids(fleet)
        end_server()
        began, used_s = perf_counter(), {name: process_cpu_s(pid) for name, pid in pids.items()}
        pause_s(down_s)
        down_for_s = perf_counter() - began
        shares = {
            name: (process_cpu_s(pid) - used_s[name]) / down_for_s for name, pid in pids.items()
        }
        server.start()
        returned = perf_counter()
        pause_s(_AFTERWARDS_S)
        load.stop()
    fleet.wait_idle(MODEL, 60.0)
    busiest = max(shares, key=shares.get)
    return Outage(
        how="SIGKILL" if how == "kill" else "SIGTERM",
        down_s=down_s,
        resumed_s=_resumed_s(load, returned),
        log_lines=max(_line_count(program) - count for program, count in lines.items()),
        cpu_share=shares[busiest],
        busiest=busiest,
        requests=load.requests,
        counts=reply_counts(fleet, load.requests),
    )


def _resumed_s(load, returned):
    """Time to the first answer to a request that was sent after the server's return."""
    answers = [s.over_at for s in load.between(returned, _NEVER_S) if s.outcome == OK]
    return min(answers, default=_NEVER_S) - returned


def _promises(outage):
    known = len(acknowledged(outage.requests))
    lost = outage.counts[0]
    return [
        at_most(
            f"server away {outage.down_s:g} s by {outage.how}, {_RATE_PER_S:g} requests/s: "
            "first answer after its return, s",
            outage.resumed_s,
            _RESUME_S,
        ),
        # A killed process loses nothing that it wrote to the file; only a machine's end does.
        Promise(
            promise=f"… of {known} acknowledged, lost ({outcomes(outage.requests)})",
            bound="= 0",
            figure=float(lost),
            holds=lost == 0 and known > 0,
        ),
        equals("… answered more than once", known - lost - outage.counts[1], 0),
        at_least("… requests sent a second", _rate_per_s(outage.requests), 0.9 * _RATE_PER_S),
        at_most("… log lines of the program that wrote most", outage.log_lines, 20),
        at_most(f"… CPU while down, cores ({outage.busiest} most)", outage.cpu_share, 0.10),
    ]


def _rate_per_s(requests):
    """The load that there really was."""
    return (len(requests) - 1) / (requests[-1].sent_at - requests[0].sent_at)


def _line_count(program):
    return program.log_text().count("\n")


def _pids(fleet):
    """Main process and device process of every program, by name."""
    found = {"router": fleet.routers[0].pid}
    for at, worker in enumerate(fleet.workers):
        found |= {f"consumer {at}": worker.pid, f"device {at}": worker.device_pid()}
    return found
