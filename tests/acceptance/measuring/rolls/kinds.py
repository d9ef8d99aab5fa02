"""Rolls between versions of which the packages, or only the user's code, differ."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.measuring.own_class import run
from tests.acceptance.measuring.own_fleet import own_fleet
from tests.acceptance.measuring.promise import at_most, equals
from tests.support.wheels import lock_file, make_wheel

from .arena import quiet, serve_first, start_jobs, steady
from .commands import must
from .gaps import Mark, Span, longest_gap_ms, no_errors
from .records import COMPLETED, wait_over

_TASTE = """\
import batchfleet
import flavour


class Taste(batchfleet.Model):
    def predict(self, rows, context):
        return [{"answer": flavour.NAME} for row in rows]
"""
_CODE = """\
import batchfleet


class Shout(batchfleet.Model):
    def predict(self, rows, context):
        return [{"answer": row["text"].%s()} for row in rows]
"""
_FLAVOURS = {"1": "sweet", "2": "sour"}
# Which flavour each version of a model has: what one of them leaves, the other one takes.
_MODELS = {"left": {"1": "1", "2": "2"}, "right": {"1": "2", "2": "1"}}
_RATE_PER_S = 50.0
_OPTIONS = ("--steps", "50,100", "--hold", "2")
_GAP_MS = 1000.0


def conflicting_packages(*, quick):
    """Two models change places between two versions of one package, at once, on one worker."""
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-cache-") as cache,
        own_fleet(allow_code="own", cache=cache) as fleet,
    ):
        locks = {at: _lock(fleet, at, name) for at, name in _FLAVOURS.items()}
        for model, flavours in _MODELS.items():
            for version, at in flavours.items():
                fleet.publish_code(_TASTE, model, version, requirements=locks[at])
        for version in _FLAVOURS:
            run(fleet.folder, "batchfleet.ops", "models", "environment", "build", f"left/{version}",
                "--store", fleet.store.root, "--cache", cache)  # fmt: skip
        tastes = {(m, v): _FLAVOURS[at] for m, of in _MODELS.items() for v, at in of.items()}
        return _roll_all(fleet, list(_MODELS), tastes, "two models whose packages conflict")


def _lock(fleet, at, name):
    wheel = make_wheel(Path(fleet.folder) / "wheels", "flavour", at, f"NAME = {name!r}\n")
    return lock_file(Path(fleet.folder) / f"requirements-{at}.lock", wheel)


def only_code_differs(*, quick):
    """The same files, limits and parameters; one word of the class is another one."""
    with own_fleet(allow_code="own") as fleet:
        for version, word in (("1", "upper"), ("2", "lower")):
            fleet.publish_code(_CODE % word, "shout", version)
        answers = {("shout", "1"): "HELLO", ("shout", "2"): "hello"}
        return _roll_all(fleet, ["shout"], answers, "a roll in which only the code differs")


def _roll_all(fleet, models, answers, title):
    """Roll these models from 1 to 2, the second begins before the first is over."""
    for model in models:
        serve_first(fleet, f"{model}/1", 1)
    start_jobs(fleet, 1)
    with ExitStack() as stack:
        loads = {model: stack.enter_context(steady(fleet, model, _RATE_PER_S)) for model in models}
        began = quiet(2.0).ended
        for model in models:
            must(fleet, "roll", "start", f"{model}/2", *_OPTIONS)
        phases = [wait_over(fleet, model).phase for model in models]
        marks = [Mark.now(fleet, loads[model]) for model in models]
        span = Span(began=began, ended=quiet(2.0).ended)
    return [
        equals(f"{title}: how they end", phases, [COMPLETED] * len(models)),
        *[no_errors(f"… {model}", load, span) for model, load in loads.items()],
        equals("… wrong answers", _wrong(loads, answers), 0),
        equals("… later answers of 1", _late(loads, marks), 0),
        at_most(
            "… longest gap, ms",
            max(longest_gap_ms(load, span) for load in loads.values()),
            _GAP_MS,
        ),
    ]


def _wrong(loads, answers):
    return sum(
        one.outputs["answer"] != [answers[model, one.version]]
        for model, load in loads.items()
        for one in load.requests
        if one.outputs is not None
    )


def _late(loads, marks):
    return sum(
        one.version == "1"
        for load, mark in zip(loads.values(), marks, strict=True)
        for one in mark.later_answers(load)
    )
