"""The server's memory is full while work is under way: it ends, and nothing new comes in."""

import secrets
from dataclasses import dataclass
from time import perf_counter

from batchfleet.wire.errors import ErrorKind
from tests.support.fleet import draft_of, until

from .mortal_server import mortal_server, served_fleet
from .pause import pause_s
from .promise import Promise, at_least, at_most, equals
from .steady_load import NO_ANSWER, OK, OPEN, LoadPlan, SteadyLoad, outcomes, reply_counts

MODEL = "full"
_RATE_PER_S = 100.0
_PLAN = LoadPlan(model=MODEL, rate_per_s=_RATE_PER_S, timeout_ms=120_000)
_BACKLOG = 1_500
_BACKLOG_TEXT = "!sleep:10"
# Used memory ÷ maxmemory. Nearly full: entries still get in, and routers refuse them. Full: the
# server itself refuses them, and goes on to do so while the workers' finishing frees some of it.
_NEARLY_FULL, _FULL = 0.88, 1.25
# So that what a phase adds and frees is small beside it.
_BALLAST_BYTES = 64 * 1024 * 1024
_BUSY = ErrorKind.BUSY.label
# A router looks at the memory every second.
_NOTICED_S = 2.0
_PHASE_S, _PHASE_QUICK_S = 6.0, 3.0
_JUST_IN_TIME = 50
_LOG_LINES = 20
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What happened while memory was short.

    Attributes:
        sent: requests that were sent while it was short and every router knew it.
        ended: requests of the backlog that were answered meanwhile.
        backlog_ok: requests of the backlog that were answered ok in the end.
        single: of the entries that came in last before, those with one terminal item in the end.
        log_lines: what the router wrote meanwhile.
    """

    sent: list
    ended: int
    backlog_ok: int
    single: int
    log_lines: int


def full_memory(*, quick):
    """Nearly full, then full, each with a backlog that the workers go on with; then free again."""
    phase_s = _PHASE_QUICK_S if quick else _PHASE_S
    with mortal_server() as server, served_fleet(server, draft_of("echo", MODEL)) as fleet:
        fleet.server.set("ballast", bytes(_BALLAST_BYTES))
        with SteadyLoad(fleet, _PLAN) as load:
            nearly = _short_of_memory(fleet, load, _NEARLY_FULL, phase_s)
            full = _short_of_memory(fleet, load, _FULL, phase_s)
            freed = perf_counter()
            pause_s(_NOTICED_S + phase_s)
            load.stop()
        fleet.wait_idle(MODEL, _PATIENCE_S)
        after = load.between(freed + _NOTICED_S, perf_counter())
        # A refusal was no answer to an accepted request, and its key is gone soon.
        owed = [sent for sent in load.requests if sent.outcome != _BUSY]
        counts = reply_counts(fleet, owed)
        buried = sum(len(worker.events("worker.buried")) for worker in fleet.workers)
    unheard = sum(sent.outcome in (NO_ANSWER, OPEN) for sent in load.requests)
    return [
        *_finishing_continues("memory at 88 %", nearly),
        _all(nearly.sent, "refused as busy, with retry-after", _is_told_when_to_come_back),
        *_finishing_continues("memory full", full),
        _all(full.sent, "refused as busy, with retry-after", _is_told_when_to_come_back),
        _all(after, "answered ok once memory is free again", lambda one: one.outcome == OK),
        equals(
            f"… in all, acknowledged without exactly one answer ({outcomes(load.requests)})",
            sum(counts.values()) - counts[1] + unheard,
            0,
        ),
        equals("… workers buried", buried, 0),
    ]


def _short_of_memory(fleet, load, share, phase_s):
    """Let a backlog be accepted, and watch it while so much of the memory is in use."""
    backlog = [{"text": _BACKLOG_TEXT, "timeout_ms": "120000"}] * _BACKLOG
    ids = fleet.submit_all(MODEL, backlog)
    until(lambda: fleet.ingress_length(MODEL) == 0, "the backlog is accepted")
    lines = fleet.routers[0].log_text().count("\n")
    began, ended_before = perf_counter(), _answered(fleet, ids)
    last_ids = _fill(fleet, share)
    pause_s(phase_s)
    ended, over = _answered(fleet, ids) - ended_before, perf_counter()
    log_lines = fleet.routers[0].log_text().count("\n") - lines
    fleet.server.config_set("maxmemory", 0)
    replies = fleet.replies(MODEL, [*ids, *last_ids])[: len(ids)]
    return Phase(
        sent=load.between(began + _NOTICED_S, over),
        ended=ended,
        backlog_ok=sum(reply.status == "ok" for reply in replies),
        single=sum(len(fleet.items(MODEL, one)) == 1 for one in last_ids),
        log_lines=log_lines,
    )


def _fill(fleet, share):
    """Add entries and have so much of the memory in use, before anybody sees either of them."""
    used = fleet.server.info("memory")["used_memory"]
    ids = [secrets.token_hex(8) for _ in range(_JUST_IN_TIME)]
    stream = fleet.keys(MODEL).ingress("default")
    with fleet.server.pipeline(transaction=True) as pipe:
        for one in ids:
            pipe.xadd(stream, {"id": one, "inputs": '{"text": ["last"]}'}, nomkstream=True)
        pipe.config_set("maxmemory", int(used / share))
        pipe.execute()
    return ids


def _answered(fleet, ids):
    keys = fleet.keys(MODEL)
    with fleet.server.pipeline(transaction=False) as pipe:
        for request_id in ids:
            pipe.exists(keys.reply("default", request_id))
        return sum(pipe.execute())


def _finishing_continues(when, phase):
    return [
        at_least(f"{when}, {_BACKLOG} open: requests answered meanwhile", phase.ended, 100),
        equals("… of these, answered ok in the end", phase.backlog_ok, _BACKLOG),
        equals(
            f"… of {_JUST_IN_TIME} entries that came in just before, with one answer in the end",
            phase.single,
            _JUST_IN_TIME,
        ),
        at_most("… log lines of the router meanwhile", phase.log_lines, _LOG_LINES),
    ]


def _is_told_when_to_come_back(sent):
    return sent.outcome == _BUSY and (sent.retry_after_ms or 0) > 0


def _all(requests, what, holds):
    count = sum(map(holds, requests))
    return Promise(
        promise=f"… of {len(requests)} sent then, {what} ({outcomes(requests)})",
        bound=f"= {len(requests)}",
        figure=float(count),
        holds=count == len(requests) > 0,
    )
