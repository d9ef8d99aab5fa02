"""Rolls under load from one version to the next and back, and how far the weight is kept."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from batchfleet.models.importing import MINILM_EXACT, minilm_draft
from batchfleet.service.settings import SETTING_ROWS
from tests.acceptance.measuring.own_fleet import own_fleet
from tests.acceptance.measuring.promise import Promise, at_most, attempt, equals
from tests.acceptance.measuring.steady_load import OK
from tests.acceptance.measuring.up import minilm_sources
from tests.acceptance.measuring.word_texts import word_texts
from tests.support.fleet import until

from .arena import LOAD, quiet, rolling_fleet, saturation_per_s, serve_first, start_jobs, steady
from .commands import must
from .gaps import SLACK_MS, Mark, Span, failed, longest_gap, longest_gap_ms, misnamed
from .records import COMPLETED, ROLLED_BACK, record_of, wait_for, wait_over
from .versions import Stub

STRATEGIES = ("beside", "worker-by-worker")
_LOAD_S = 5.0
_BASE_MS = 60.0
_WEIGHT, _REQUESTS = 10.0, 2000
_HOLD_S = "3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A model to roll: how its fleet is made, and what is said of it."""

    name: str
    model: str
    fleet: object
    texts: tuple[str, ...]
    steps: str
    slack_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One roll, or one that went back, and what its callers noticed."""

    span: Span
    longer_ms: float
    where: str
    errors: int
    late: int
    phase: str


@contextmanager
def _stub_fleet(quick):
    stub = Stub(base_ms=_BASE_MS, load_s=1.0 if quick else _LOAD_S)
    with rolling_fleet({"stub/1": stub, "stub/2": stub}) as fleet:
        yield fleet


@contextmanager
def _minilm_fleet(_quick):
    with own_fleet(workers=2, threads=1) as fleet:
        for version in ("1", "2"):
            fleet.store.publish(replace(minilm_draft(), version=version), minilm_sources())
        serve_first(fleet, f"{MINILM_EXACT}/1", 2)
        start_jobs(fleet, 1)
        yield fleet


def _kinds():
    return (
        Kind(
            name="device_stub",
            model="stub",
            fleet=_stub_fleet,
            texts=("hello", "good morning", "how are you?"),
            steps="10,50,100",
            slack_ms=SLACK_MS,
            count=3000,
        ),
        Kind(
            name="MiniLM",
            model=MINILM_EXACT,
            fleet=_minilm_fleet,
            texts=tuple(word_texts(256)),
            steps="50,100",
            slack_ms=SLACK_MS + SETTING_ROWS["warm_slice_ms"].default,
            count=600,
        ),
    )


def rolls_under_load(*, quick):
    """Each kind of model under each strategy."""
    kinds = _kinds()[:1] if quick else _kinds()
    return [
        promise
        for kind in kinds
        for promise in attempt(kind.name, lambda kind=kind: _rolls_of(kind, quick=quick))
    ]


def _rolls_of(kind, *, quick):
    with kind.fleet(quick) as fleet:
        full_per_s = saturation_per_s(fleet, kind.model, kind.texts, kind.count)
        promises = []
        for strategy in STRATEGIES:
            with steady(fleet, kind.model, LOAD * full_per_s, texts=kind.texts) as load:
                options = ("--steps", kind.steps, "--hold", _HOLD_S, "--strategy", strategy)
                promises += _measure(fleet, load, kind, options, quick=quick)
    return promises


def _measure(fleet, load, kind, options, *, quick):
    """So many rolls to the other version, each after one that goes back."""
    quiet_s, times = (8.0, 1) if quick else (20.0, 3)
    found = {_goes_back: [], _goes_on: []}
    for _ in range(times):
        for go, shifts in found.items():
            since = quiet(quiet_s).began
            shifts.append(_shift(fleet, load, kind.model, options, (go, since)))
    load.stop()
    title = f"{kind.name}, {options[-1]}, {load.plan.rate_per_s:.0f}/s"
    wrong = misnamed(load) if kind.model == "stub" else 0
    return [
        *_promises(f"{title}: {times} rolls", found[_goes_on], kind, COMPLETED),
        *_promises(f"{title}: {times} rolls back", found[_goes_back], kind, ROLLED_BACK),
        equals("… answers without the name of their version", wrong + _unnamed(load), 0),
    ]


def _unnamed(load):
    return sum(one.outcome == OK and one.version not in ("1", "2") for one in load.requests)


def _shift(fleet, load, model, options, how):
    """Begin a roll onto the version that is not stable, and let it go on or back."""
    go, since = how
    old = record_of(fleet, model).stable
    new = "2" if old == "1" else "1"
    began = must(fleet, "roll", "start", f"{model}/{new}", *options).began
    phase, gone = go(fleet, model, old, new)
    mark = Mark.now(fleet, load)
    after = quiet(2.0)
    span = Span(began=began, ended=after.ended)
    # What was sent up to now is answered before anything is counted.
    until(lambda: all(one.over_at for one in load.between(began, after.ended)), "all are answered")
    normal_ms = longest_gap_ms(load, span.before(since))
    gap_ms, at_s = longest_gap(load, span)
    return Shift(
        span=span,
        longer_ms=gap_ms - normal_ms,
        where=f"{gap_ms:.0f} after {at_s:.0f} s, {normal_ms:.0f} before",
        errors=len(failed(load, span)),
        late=sum(one.version == gone for one in mark.later_answers(load, after.ended)),
        phase=phase,
    )


def _goes_on(fleet, model, old, _new):
    return wait_over(fleet, model).phase, old


def _goes_back(fleet, model, _old, new):
    wait_for(fleet, model, lambda one: one.canary[1] >= _WEIGHT, "the canary gets its share")
    quiet(2.0)
    must(fleet, "roll", "rollback", model)
    return wait_over(fleet, model).phase, new


def _promises(title, shifts, kind, phase):
    ended = sum(one.phase == phase for one in shifts)
    seconds = median(one.span.seconds for one in shifts)
    return [
        equals(f"{title} of {seconds:.0f} s: {phase}", ended, len(shifts)),
        equals("… errors", sum(one.errors for one in shifts), 0),
        at_most(
            "… longest gap between answers over that of as long before, ms, median "
            f"({'; '.join(one.where for one in shifts)})",
            median(one.longer_ms for one in shifts),
            kind.slack_ms,
        ),
        equals("… answers of the version that is gone", sum(one.late for one in shifts), 0),
    ]


def weight_of_a_step(*, quick):
    """A step of ten per cent, held while so many requests come."""
    versions = {"stub/1": Stub(), "stub/2": Stub()}
    with rolling_fleet(versions) as fleet:
        must(fleet, "roll", "start", "stub/2", "--steps", f"{_WEIGHT:g},100", "--hold", "600")
        wait_for(fleet, "stub", lambda one: one.canary == ("2", _WEIGHT), "its first step")
        quiet(1.0)  # the routers follow
        ids = fleet.submit_all("stub", [{"text": f"text {at}"} for at in range(_REQUESTS)])
        found = [reply.version for reply in fleet.replies("stub", ids)]
    share = 100 * found.count("2") / _REQUESTS
    return [
        Promise(
            promise=f"weight {_WEIGHT:g} %: share of {_REQUESTS} requests, %",
            bound="8 to 12",
            figure=share,
            holds=8 <= share <= 12,
        )
    ]
