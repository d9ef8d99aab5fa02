"""A fleet that can roll: router, workers and jobs workers, and its own saturation."""

from contextlib import contextmanager
from time import perf_counter

from tests.acceptance.measuring.callers import in_turns
from tests.acceptance.measuring.own_fleet import own_fleet
from tests.acceptance.measuring.pause import pause_s
from tests.acceptance.measuring.steady_load import LoadPlan, SteadyLoad

from .commands import must
from .gaps import Span
from .versions import publish

TIMEOUT_MS = 60_000
LOAD = 0.8
_CALLERS = 64
_READY_S = 120.0


@contextmanager
def rolling_fleet(versions, *, workers=2, jobs=1, **settings):
    """A fleet with these versions, `model/version` → `Stub`, of which the first is deployed."""
    with own_fleet(workers=workers, allow_code="own", **settings) as fleet:
        for name, stub in versions.items():
            publish(fleet, name, stub)
        serve_first(fleet, next(iter(versions)), workers)
        start_jobs(fleet, jobs)
        yield fleet


def serve_first(fleet, name, workers):
    """Deploy the first version of a model, and wait until all workers have it."""
    must(fleet, "deploy", name, "--wait", str(_READY_S))
    fleet.wait_until_served(*name.split("/"), workers)


def start_jobs(fleet, count):
    """Start so many jobs workers."""
    return fleet.start_all(*["jobs"] * count)


def saturation_per_s(fleet, model, texts, count):
    """What this fleet answers at most, with callers enough; the first run only warms up."""
    inputs = [texts[at % len(texts)] for at in range(count)]
    in_turns(fleet, model, inputs[: len(inputs) // 4], _CALLERS)
    return in_turns(fleet, model, inputs, _CALLERS).per_s


def steady(fleet, model, rate_per_s, **plan):
    """A steady load of one model."""
    return SteadyLoad(
        fleet, LoadPlan(model=model, rate_per_s=rate_per_s, timeout_ms=TIMEOUT_MS, **plan)
    )


def quiet(seconds):
    """Let time pass in which nothing is changed; returns the span."""
    began = perf_counter()
    pause_s(seconds)
    return Span(began=began, ended=perf_counter())
