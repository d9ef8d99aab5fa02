"""Whatever an operator does to rolls, and whatever dies meanwhile, in an order of chance.

Everything that has died is started again at once, as a supervisor does.
"""

import os
import signal
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from batchfleet.ops.rolls.state import TRANSITIONS, Phase, read_state
from batchfleet.wire.errors import SettingsError
from tests.acceptance.measuring.mortal_server import mortal_fleet, mortal_server
from tests.acceptance.measuring.pause import pause_s
from tests.acceptance.measuring.promise import equals
from tests.acceptance.measuring.steady_load import OK, acknowledged, outcomes, reply_counts

from .arena import serve_first, start_jobs, steady
from .commands import command
from .gaps import misnamed
from .records import Watch, record_of, wait_over
from .versions import Stub, publish

MODEL = "stub"
_SEED = 11
_STEPS, _STEPS_QUICK = 80, 15
_RATE_PER_S = 60.0
# The last one cannot be loaded.
_VERSIONS = {
    "1": Stub(),
    "2": Stub(load_s=0.5),
    "3": Stub(load_s=0.2),
    "4": Stub(load="raise ValueError('these weights do not fit')"),
}
_NEVER = "4"
_DRAWN = ("1", "2", "3") * 2 + (_NEVER,)
_OPTIONS = ("--steps", "10,30,60,100", "--hold", "2", "--min-samples", "20")
_SLACK_S = 0.5
# Well within the time that replies are kept.
_REST_S = 120.0


@dataclass(kw_only=True)
class Play:
    """What is done to the fleet, drawn one after the other."""

    server: object
    fleet: object
    chance: Random = field(default_factory=lambda: Random(_SEED))
    told: list = field(default_factory=list)

    def step(self):
        """Do one thing, restart what has died, and let some time pass."""
        self.chance.choice(_ACTIONS)(self)
        for program in list(self.fleet.programs):
            if not program.is_running():
                self.fleet.programs.remove(program)
                self.fleet.start(program.kind)
        pause_s(self.chance.uniform(0.1, 2.0))

    def start(self):
        version = self.chance.choice(_DRAWN)
        strategy = self.chance.choice(("beside", "worker-by-worker"))
        self._say("roll", "start", f"{MODEL}/{version}", *_OPTIONS, "--strategy", strategy)

    def pause(self):
        self._say("roll", "pause", MODEL)

    def resume(self):
        self._say("roll", "resume", MODEL)

    def promote(self):
        self._say("roll", "promote", MODEL)

    def roll_back(self):
        self._say("roll", "rollback", MODEL)

    def deploy(self):
        version = self.chance.choice(_DRAWN)
        self._say("deploy", f"{MODEL}/{version}", "--wait", "20")

    def kill_program(self):
        running = [program for program in self.fleet.programs if program.is_running()]
        self.chance.choice(running).kill()

    def kill_device(self):
        workers = [one for one in self.fleet.programs if one.kind == "consumer"]
        started = self.chance.choice(workers).events("device.started")
        if started:
            with suppress(ProcessLookupError):  # it is gone by itself
                os.kill(started[-1]["pid"], signal.SIGKILL)

    def kill_server(self):
        self.server.kill()
        pause_s(self.chance.uniform(0.1, 1.0))
        self.server.start()

    def _say(self, *words):
        self.told.append((words, command(self.fleet, *words)))


_ACTIONS = (
    *(Play.start,) * 6,
    Play.pause,
    Play.resume,
    Play.resume,
    Play.promote,
    Play.promote,
    Play.roll_back,
    Play.deploy,
    *(Play.kill_program,) * 4,
    Play.kill_device,
    Play.kill_server,
)


def random_sequence(*, quick):
    """So many steps of chance under load; then the last roll is let go to its end."""
    count = _STEPS_QUICK if quick else _STEPS
    with (
        _fleet() as (server, fleet),
        steady(fleet, MODEL, _RATE_PER_S) as load,
        Watch(fleet, MODEL) as watch,
    ):
        play = Play(server=server, fleet=fleet)
        for _ in range(count):
            play.step()
        phase = _bring_to_rest(play)
        load.stop()
        counts = reply_counts(fleet, load.requests)
    broken = [done for _, done in play.told if done.exit_code not in (0, 1)]
    return [
        equals(
            f"{count} random steps ({_told(play)}): answers of versions not declared",
            _undeclared(load, watch),
            0,
        ),
        equals("… answers under a wrong name", misnamed(load), 0),
        equals("… states that the table does not allow", _impossible(watch), 0),
        equals("… the last roll is over", phase in ("", *_ENDS), True),
        equals("… commands that ended in neither 0 nor 1", len(broken), 0),
        equals(
            f"… acknowledged requests with one answer ({outcomes(load.requests)})",
            counts[1],
            len(acknowledged(load.requests)),
        ),
    ]


@contextmanager
def _fleet():
    with mortal_server() as server, mortal_fleet(server, allow_code="own") as fleet:
        for version, stub in _VERSIONS.items():
            publish(fleet, f"{MODEL}/{version}", stub)
        fleet.bring_up(workers=2)
        serve_first(fleet, f"{MODEL}/1", 2)
        start_jobs(fleet, 2)
        yield server, fleet


_ENDS = {phase.value for phase, events in TRANSITIONS.items() if not events}


def _bring_to_rest(play):
    """Let a paused roll go on, and wait for its end."""
    fleet = play.fleet
    if record_of(fleet, MODEL).phase == Phase.PAUSED:
        command(fleet, "roll", "resume", MODEL)
    phase = record_of(fleet, MODEL).phase
    if phase and phase not in _ENDS:
        phase = wait_over(fleet, MODEL, _REST_S).phase
    return phase


def _told(play):
    """How many of which command succeeded."""
    found = Counter(" ".join(words[:2][: 1 + (words[0] == "roll")]) for words, done in play.told)
    done_well = Counter(
        " ".join(words[:2][: 1 + (words[0] == "roll")])
        for words, done in play.told
        if not done.exit_code
    )
    return ", ".join(f"{name} {done_well[name]} of {found[name]}" for name in sorted(found))


def _undeclared(load, watch):
    """Answers of a version that no record offered between the request and its answer."""
    answers = [one for one in load.requests if one.outcome == OK]
    return sum(
        one.version == _NEVER
        or not any(
            one.version in record.offered
            for record in watch.between(one.sent_at - _SLACK_S, one.over_at)
        )
        for one in answers
    )


def _impossible(watch):
    """Records whose roll cannot be read, or whose phase cannot be reached from the one before."""
    reachable = _closure()
    found = 0
    rolls = []
    for record in watch.records:
        try:
            state = read_state(MODEL, record.fields.get(b"roll", b""))
        except SettingsError:
            found += 1
            continue
        if state is not None:
            rolls.append(state)
    for before, after in pairwise(rolls):
        is_same = before.roll == after.roll
        found += is_same and after.phase not in reachable[before.phase] | {before.phase}
    return found


def _closure():
    """Phase → those that the table lets follow, sooner or later."""
    found = {phase: set(events.values()) for phase, events in TRANSITIONS.items()}
    for _ in found:
        found = {
            phase: after.union(*(found[one] for one in after)) for phase, after in found.items()
        }
    return found
