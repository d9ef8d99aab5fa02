"""Many switches between two versions under light load: what is left of each in the worker.

Latency is compared with that of `noop`, which the same fleet serves to as many callers at the same
time: a busy machine slows both.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from batchfleet.models.importing import MINILM_EXACT, minilm_draft
from tests.acceptance.measuring.own_fleet import own_fleet
from tests.acceptance.measuring.promise import at_most, attempt, equals
from tests.acceptance.measuring.steady_load import OK, outcomes
from tests.acceptance.measuring.up import minilm_sources
from tests.support.fleet import draft_of

from .arena import serve_first, steady
from .commands import must
from .deploys import settled_rss_mb
from .gaps import Span
from .versions import Stub, publish

_RATE_PER_S = 10.0
_FLOOR = "noop"
_RSS_RATIO, _P50_RATIO = 1.05, 1.25
_ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often which model is switched; memory is compared with that after switch `base`."""

    name: str
    model: str
    fleet: object
    count: int
    quick_count: int
    base: int = _ROWS


@contextmanager
def _echo_fleet():
    with own_fleet(draft_of(_FLOOR, _FLOOR), allow_code="own") as fleet:
        for version in ("1", "2"):
            publish(fleet, f"held/{version}", Stub(base_ms=0.0, holds_mb=50))
        serve_first(fleet, "held/1", 1)
        yield fleet


@contextmanager
def _minilm_fleet():
    with own_fleet(draft_of(_FLOOR, _FLOOR), threads=1) as fleet:
        for version in ("1", "2"):
            fleet.store.publish(replace(minilm_draft(), version=version), minilm_sources())
        serve_first(fleet, f"{MINILM_EXACT}/1", 1)
        yield fleet


_PLANS = (
    Plan(name="echo of 50 MB", model="held", fleet=_echo_fleet, count=100, quick_count=14),
    Plan(name="MiniLM", model=MINILM_EXACT, fleet=_minilm_fleet, count=15, quick_count=0),
)


def many_switches(*, quick):
    """Each model in a fleet of its own."""
    counts = {plan: plan.quick_count if quick else plan.count for plan in _PLANS}
    return [
        promise
        for plan, count in counts.items()
        if count
        for promise in attempt(plan.name, lambda plan=plan, count=count: _switch(plan, count))
    ]


def _switch(plan, count):
    sizes_mb, spans = [], []
    with (
        plan.fleet() as fleet,
        steady(fleet, plan.model, _RATE_PER_S) as load,
        steady(fleet, _FLOOR, _RATE_PER_S) as floor,
    ):
        for at in range(count):
            done = must(fleet, "deploy", f"{plan.model}/{2 - at % 2}", "--wait", "120")
            sizes_mb.append(settled_rss_mb(fleet.workers[0].pid))
            spans.append(Span(began=done.began, ended=done.ended))
        load.stop()
        floor.stop()
    last, first = spans[-_ROWS:], spans[:_ROWS]
    ratios = [_p50_ms(load, part) / _p50_ms(floor, part) for part in (last, first)]
    return [
        at_most(
            f"{plan.name}, {count} switches: memory at the end ÷ {sizes_mb[plan.base - 1]:.0f} MB "
            f"after switch {plan.base}",
            sizes_mb[-1] / sizes_mb[plan.base - 1],
            _RSS_RATIO,
        ),
        at_most(
            f"… p50 ÷ that of {_FLOOR} over the last {_ROWS}, ÷ {ratios[1]:.2f} over the first",
            ratios[0] / ratios[1],
            _P50_RATIO,
        ),
        equals(
            f"… errors ({outcomes(load.requests)})",
            sum(one.outcome != OK for one in load.requests),
            0,
        ),
    ]


def _p50_ms(load, spans):
    """Median wait from the first of these switches to the last."""
    sent = load.between(spans[0].began, spans[-1].ended)
    return median(1000 * (one.over_at - one.sent_at) for one in sent)
