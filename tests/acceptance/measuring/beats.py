"""The beat of a worker whose device process is silent, with large requests waiting behind it."""

import json
import os
import secrets
import signal
from time import perf_counter

from tests.support.fleet import draft_of, until

from .own_fleet import own_fleet
from .promise import at_most, equals

MODEL = "silent"
_SILENT_S = 5.0
_WAITING = 40
_TEXT = "x" * 1_000_000
_GAP_S = 1.5


def beats_beside_a_silent_device():
    """The interpreter lock is held; then the process is stopped."""
    limits = {"max_batch_size": 32, "predict_ms": 60_000, "timeout_ms": 60_000}
    with own_fleet(draft_of("echo", MODEL, limits=limits)) as fleet:
        held_s, held_answered = _longest_gap(fleet, f"!hold_gil:{_SILENT_S * 1000:.0f}", None)
        stopped_s, stopped_answered = _longest_gap(
            fleet, "!sleep:300", fleet.workers[0].device_pid()
        )
    return [
        at_most(
            "the device process holds the interpreter lock: longest gap of the beat, s",
            held_s,
            _GAP_S,
        ),
        equals("… requests of 1 MB answered afterwards", held_answered, _WAITING),
        at_most("the device process is stopped: longest gap of the beat, s", stopped_s, _GAP_S),
        equals("… requests of 1 MB answered afterwards", stopped_answered, _WAITING),
    ]


def _longest_gap(fleet, blocker, stopped_pid):
    """Longest time between two beats while the device is silent, and answers afterwards."""
    first = fleet.submit(MODEL, blocker)
    until(lambda: fleet.pending(MODEL) == 1, "the device is busy")
    if stopped_pid is not None:
        os.kill(stopped_pid, signal.SIGSTOP)
    began = perf_counter()
    ids = _submit_large(fleet)
    gap_s = _watch(fleet, began)
    if stopped_pid is not None:
        os.kill(stopped_pid, signal.SIGCONT)
    assert fleet.reply(MODEL, first).status == "ok"
    answered = sum(reply.status == "ok" for reply in fleet.replies(MODEL, ids))
    return gap_s, answered


def _submit_large(fleet):
    """Half of them in the entry, half by blob key."""
    inputs = json.dumps({"text": [_TEXT]})
    keys, ids = fleet.keys(MODEL), []
    for at in range(_WAITING):
        name = f"large-{secrets.token_hex(8)}"
        if at % 2:
            fleet.submit(MODEL, None, id=name, inputs=inputs)
        else:
            fleet.server.set(keys.blob("default", name), inputs, px=80_000)
            fleet.submit(MODEL, None, id=name, inputs_at="blob", inputs_bytes=len(inputs))
        ids.append(name)
    return ids


def _watch(fleet, began):
    workers, name = fleet.keys(MODEL).workers, fleet.workers[0].facts["worker"]
    seen, seen_at, longest = fleet.server.zscore(workers, name), perf_counter(), 0.0

    def is_over():
        nonlocal seen, seen_at, longest
        beat, now = fleet.server.zscore(workers, name), perf_counter()
        longest = max(longest, now - seen_at)
        if beat != seen:
            seen, seen_at = beat, now
        return now - began > _SILENT_S

    until(is_over, "the silence is over")
    return longest
