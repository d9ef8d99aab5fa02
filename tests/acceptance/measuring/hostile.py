"""A healthy model beside a hostile one on one worker: its callers must notice nothing, or little.

Twenty provocations within sixty seconds at fifty requests a second of the neighbour. Where the
process lives, its p99 stays within twice the quiet one. Where the process ends, a gap lasts for no
longer than to start a process and load the models again and a second, and there are two of them at
most: the version then gets a process of its own.
"""

from datetime import datetime
from statistics import quantiles
from time import perf_counter

from tests.support.fleet import digests, draft_of

from .hostile_models import MODELS
from .own_fleet import own_fleet
from .pause import pause_s
from .promise import at_most, attempt, equals
from .steady_load import OK, LoadPlan, SteadyLoad, acknowledged, outcomes, reply_counts

NEIGHBOUR, HOSTILE = "neighbour", "hostile"
PROVOCATIONS, DURATION_S, RATE_PER_S = 20, 60.0, 50.0
QUIET_S = 20.0
_QUICK_PROVOCATIONS, _QUICK_DURATION_S, _QUICK_QUIET_S = 5, 15.0, 5.0
_SLACK_S = 1.0
_GAPS_MAX = 2
# Longer than the slowest answer of a quiet fleet, shorter than to start a process.
_GAP_S = 0.3
_TIMEOUT_MS = 30_000


def hostile_models(*, quick):
    """One fleet for each model."""
    models = MODELS[:4] if quick else MODELS
    return [
        promise
        for model in models
        for promise in attempt(model.name, lambda model=model: _beside(model, quick=quick))
    ]


def _beside(model, *, quick):
    count, duration_s, quiet_s = (
        (_QUICK_PROVOCATIONS, _QUICK_DURATION_S, _QUICK_QUIET_S)
        if quick
        else (PROVOCATIONS, DURATION_S, QUIET_S)
    )
    with own_fleet(draft_of("echo", NEIGHBOUR), allow_code="own") as fleet:
        _serve(fleet, model)
        plan = LoadPlan(model=NEIGHBOUR, rate_per_s=RATE_PER_S, timeout_ms=_TIMEOUT_MS)
        with SteadyLoad(fleet, plan) as load:
            pause_s(quiet_s)
            began = perf_counter()
            right = sum(_provoke(fleet, model, duration_s / count) for _ in range(count))
            ended = perf_counter()
            load.stop()
            return [
                equals(f"{model.name}: right answers of {count} provocations", right, count),
                *_lost_and_wrong(fleet, load),
                *_delays(fleet, model, load, (began, ended)),
            ]


def _serve(fleet, model):
    fleet.deploy_code(model.source, HOSTILE, class_name="Hostile", limits=model.limits)
    fleet.wait_until_served(HOSTILE)


def _provoke(fleet, model, interval_s):
    """One provocation, and what is left of its interval; whether all answers are right."""
    began = perf_counter()
    told = model.provocation
    fields = {"text": None, "timeout_ms": _TIMEOUT_MS}
    if told.parameters:
        fields["parameters"] = told.parameters
    ids = fleet.submit_all(HOSTILE, [{**fields, "inputs": raw} for raw in told.inputs])
    replies = fleet.replies(HOSTILE, ids, timeout_s=_TIMEOUT_MS / 1000 + 5)
    found = [reply.error["name"] if reply.error else _value_of(reply) for reply in replies]
    pause_s(began + interval_s - perf_counter())
    return found == [_wanted(answer) for answer in told.answers]


def _value_of(reply):
    return round(float(reply.outputs[0]["data"][0]), 4)


def _wanted(answer):
    return answer if isinstance(answer, str) else round(float(answer), 4)


def _lost_and_wrong(fleet, load):
    sent = load.requests
    (digest,) = digests([load.plan.text])
    wrong = sum(one.outcome == OK and one.outputs["digest"][0] != digest for one in sent)
    counts = reply_counts(fleet, sent)
    return [
        equals("… the neighbour's answers", outcomes(sent), f"{len(sent)} {OK}"),
        equals("… of them wrong", wrong, 0),
        equals("… not answered exactly once", len(acknowledged(sent)) - counts[1], 0),
    ]


def _delays(fleet, model, load, span):
    began, ended = span
    quiet_ms = _p99_ms(load.between(0, began))
    during = load.between(began, ended)
    if not model.ends_process:
        ratio = _p99_ms(during) / quiet_ms
        return [at_most(f"… the neighbour's p99 ÷ {quiet_ms:.1f} ms when quiet", ratio, 2)]
    gaps = _gaps_s(during)
    afterwards = [one for one in during if not gaps or one.sent_at > gaps[-1][1]]
    return [
        at_most("… gaps of the neighbour", len(gaps), _GAPS_MAX),
        at_most(
            f"… longest gap, s, over {_reload_s(fleet):.2f} s of start and load",
            max((until - since for since, until in gaps), default=0.0) - _reload_s(fleet),
            _SLACK_S,
        ),
        at_most(
            f"… p99 after them ÷ {quiet_ms:.1f} ms when quiet", _p99_ms(afterwards) / quiet_ms, 2
        ),
    ]


def _p99_ms(requests):
    waits_ms = [(one.over_at - one.sent_at) * 1000 for one in requests]
    return quantiles(waits_ms, n=100)[98]


def _gaps_s(requests):
    """Spans without an answer, `(since, until)`: those who waited in one are taken together."""
    gaps = []
    for one in requests:
        if one.over_at - one.sent_at < _GAP_S:
            continue
        if gaps and one.sent_at <= gaps[-1][1]:
            gaps[-1] = (gaps[-1][0], max(gaps[-1][1], one.over_at))
        else:
            gaps.append((one.sent_at, one.over_at))
    return gaps


def _reload_s(fleet):
    """From the start of the first device process until the models were ready, as it was told."""
    started = _told_at(fleet.workers[0].events("device.started")[0])
    ready = [_told_at(event) for event in fleet.workers[0].events("lane.ready")[:2]]
    loads_s = [event["load_ms"] / 1000 for event in fleet.workers[0].events("lane.ready")[:2]]
    return ready[0] - started + sum(loads_s[1:])


def _told_at(event):
    return datetime.fromisoformat(event["timestamp"]).timestamp()
