"""What interrupts a roll: jobs workers that are killed, a server that restarts, two operators."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from batchfleet.ops.rolls.state import Phase
from tests.acceptance.measuring.mortal_server import mortal_fleet, mortal_server
from tests.acceptance.measuring.pause import pause_s
from tests.acceptance.measuring.promise import at_most, equals
from tests.acceptance.measuring.steady_load import (
    OK,
    acknowledged,
    outcomes,
    reply_counts,
)

from .arena import quiet, rolling_fleet, serve_first, start_jobs, steady
from .commands import must, typed
from .records import COMPLETED, OVER, PAUSED, Watch, record_of, torn, wait_for, wait_over
from .versions import Stub, publish

MODEL = "stub"
_LATE_S = 15.0
_LOAD_S = 3.0
_RATE_PER_S = 120.0
_STEPS = (50, 100)
_HOLD_S = 4.0
_OPTIONS = ("--steps", "50,100", "--hold", f"{_HOLD_S:g}", "--strategy", "beside")
# Where a roll stands when one is killed: its phase and step.
_MOMENTS = ((Phase.LOADING, 0), (Phase.SHIFTING, 1), (Phase.SHIFTING, 2), (Phase.DRAINING, 2))
_POINTS = ("jobs.before_step", "jobs.after_step")
_RESTING = {*OVER, PAUSED}
_OPERATORS_READY_S = 2.0


def killed_jobs_workers(*, quick):
    """One in every phase by a signal, and those whose fault points are armed."""
    chance, late_s, killed = Random(7), [], []
    stub = Stub(base_ms=10.0, load_s=_LOAD_S)
    with (
        rolling_fleet({f"{MODEL}/1": stub, f"{MODEL}/2": stub}, jobs=0) as fleet,
        steady(fleet, MODEL, _RATE_PER_S) as load,
    ):
        start_jobs(fleet, 1)
        moments = _MOMENTS[1:2] if quick else _MOMENTS
        for moment in moments:
            victim = start_jobs(fleet, 1)[0]
            late_s.append(_lateness_s(fleet, moment, [victim], chance.uniform(0, 1.0)))
            killed.append(moment[0].value)
        for point in _POINTS[:1] if quick else _POINTS:
            armed = [fleet.start("jobs", faults=f"{point}=kill@{at}") for at in (1, 3)]
            for program in armed:
                program.wait_until_ready()
            late_s.append(_lateness_s(fleet, None, armed, 0.0))
            killed += [point for program in armed if not program.is_running()]
            for program in armed:
                program.kill()
        load.stop()
    return [
        at_most(
            f"jobs workers killed in {', '.join(killed)}: latest step, s late",
            max(late_s),
            _LATE_S,
        ),
        equals(
            f"… errors ({outcomes(load.requests)})",
            sum(one.outcome != OK for one in load.requests),
            0,
        ),
    ]


def _lateness_s(fleet, moment, victims, after_s):
    """Roll to the other version, kill where the roll stands so; how late its latest step was."""
    other = "2" if record_of(fleet, MODEL).stable == "1" else "1"
    with Watch(fleet, MODEL) as watch:
        must(fleet, "roll", "start", f"{MODEL}/{other}", *_OPTIONS)
        if moment is not None:
            wait_for(
                fleet,
                MODEL,
                lambda one: (one.phase, one.roll["step"]) == moment or one.phase == COMPLETED,
                f"the roll is {moment}",
            )
            pause_s(after_s)
            for victim in victims:
                victim.kill()
        phase = wait_over(fleet, MODEL).phase
        pause_s(0.2)
    assert phase == COMPLETED, phase
    return max(_late_ms(watch.records, other)) / 1000


def _late_ms(records, target):
    """For each change of a roll how long after it could have been it was.

    Loading may end once it has taken its time; a step once it was held; draining at once.
    """
    rolls = [one for one in records if one.roll.get("to") == target]
    for before, after in pairwise(rolls):
        may_ms = before.roll["since_ms"]
        if before.phase == Phase.LOADING:
            may_ms += 1000 * _LOAD_S * (before.roll["step"] == 0)
        elif before.phase == Phase.SHIFTING:
            may_ms = before.roll["due_ms"]
        yield after.server_ms - may_ms


def restarted_server(*, quick):
    """The server ends and comes back on its file, killed or told to, in each step."""
    with _mortal_rolling_fleet() as (server, fleet), steady(fleet, MODEL, _RATE_PER_S) as load:
        ends = (server.kill,) if quick else (server.kill, server.stop)
        steps = (1,) if quick else (1, 2)
        found = [_restarted(server, fleet, end, step) for end in ends for step in steps]
        load.stop()
        known, counts = acknowledged(load.requests), reply_counts(fleet, load.requests)
    return [
        equals(
            f"{len(found)} rolls in which the server restarted: completed, or stay put",
            sum(one.phase in (COMPLETED, PAUSED) for one in found),
            len(found),
        ),
        equals("… records that say half of it", sum(one.torn for one in found), 0),
        equals(
            f"… acknowledged requests with one answer ({outcomes(load.requests)})",
            counts[1],
            len(known),
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """How a roll ended, and how many records it had meanwhile that do not fit together."""

    phase: str
    torn: int


@contextmanager
def _mortal_rolling_fleet():
    with mortal_server() as server, mortal_fleet(server, allow_code="own") as fleet:
        stub = Stub(base_ms=10.0)
        for version in ("1", "2"):
            publish(fleet, f"{MODEL}/{version}", stub)
        fleet.bring_up(workers=2)
        serve_first(fleet, f"{MODEL}/1", 2)
        start_jobs(fleet, 2)
        yield server, fleet


def _restarted(server, fleet, end, step):
    other = "2" if record_of(fleet, MODEL).stable == "1" else "1"
    with Watch(fleet, MODEL) as watch:
        must(fleet, "roll", "start", f"{MODEL}/{other}", *_OPTIONS)
        wait_for(fleet, MODEL, lambda one: one.roll.get("step", 0) >= step, f"step {step}")
        pause_s(1.0)
        end()
        pause_s(1.0)
        server.start()
        phase = wait_for(fleet, MODEL, lambda one: one.phase in _RESTING, "it rests").phase
        pause_s(0.2)
    if phase == PAUSED:
        must(fleet, "roll", "rollback", MODEL)
    return Restarted(phase=phase, torn=sum(map(torn, watch.records)))


def two_operators(*, quick):
    """Two commands at once, of which one must win; the other is told by whom it was beaten."""
    times = 1 if quick else 5
    versions = {f"{MODEL}/{at}": Stub(load_s=_OPERATORS_READY_S) for at in ("1", "2", "3")}
    rolls, deploys = [], []
    with rolling_fleet(versions) as fleet:
        for _ in range(times):
            rolls.append(_at_once(fleet, ("roll", "start"), _OPTIONS[:2]))
            must(fleet, "roll", "rollback", MODEL)
            wait_over(fleet, MODEL)
            deploys.append(_at_once(fleet, ("deploy",), ("--wait", "30")))
            must(fleet, "deploy", f"{MODEL}/1")
            quiet(0.5)
    return [*_one_wins("roll start", rolls, times), *_one_wins("deploy", deploys, times)]


def _one_wins(title, pairs, times):
    told = {" ".join(done.err.split()) for pair in pairs for done in pair if done.exit_code}
    return [
        equals(f"two operators, {times} times: `{title}` won by one", _won(pairs), times),
        equals(f"… who lost is told who and what ({'; '.join(told)})", _told(pairs), times),
    ]


def _at_once(fleet, before, after):
    with (
        typed(fleet, *before, f"{MODEL}/2", *after) as one,
        typed(fleet, *before, f"{MODEL}/3", *after) as other,
    ):
        return one(), other()


def _won(pairs):
    return sum(sorted(done.exit_code for done in pair) == [0, 1] for pair in pairs)


def _told(pairs):
    """Whether the losers read a user at a host, and the version that won."""
    return sum(_tells_winner(pair) for pair in pairs)


def _tells_winner(pair):
    winner = next((at for at, done in enumerate(pair) if not done.exit_code), None)
    if winner is None:
        return False
    told = pair[1 - winner].err
    return "@" in told and re.search(rf"\b{winner + 2}\b", told) is not None
