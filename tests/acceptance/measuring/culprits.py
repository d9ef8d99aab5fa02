"""One row among eight misbehaves: it fails alone, and nobody else notices for long.

The eight wait inside the device process behind a ninth; their receipts tell that they did: after a
crash all have a second attempt, else all ran in one batch, or at least in one process.
"""

from statistics import median
from time import perf_counter

from tests.support.fleet import data_of, digests, draft_of, until

from .own_fleet import own_fleet
from .promise import at_most, equals

MODEL = "faulty"
STAGES = ("preprocess", "predict", "postprocess")
# Switch of `echo` → the error that the culprit gets.
SWITCHES = {
    "raise": "model_error",
    "segv": "poison",
    "hang": "time_limit",
    "nan": "bad_output",
    "wrong_count": "bad_output",
    "memory_error": "device_memory",
}
_CRASHES = ("segv", "hang")
_STAGE_MS = 600
_CULPRIT_AT = 3
_NEIGHBOURS = 7
_AFTERWARDS = 20
_TRIES = 3


def culprits_alone(*, quick):
    """Every fault in every stage."""
    limits = {"preprocess_ms": _STAGE_MS, "predict_ms": _STAGE_MS, "postprocess_ms": _STAGE_MS}
    with own_fleet(_draft(limits)) as fleet:
        promises, before, afterwards = [], [], []
        for switch in ("raise", "segv") if quick else SWITCHES:
            for stage in STAGES:
                before.append(_one_after_another(fleet))
                promises.append(_cell(fleet, switch, stage))
                afterwards.append(_one_after_another(fleet))
        # The slowest of as many on both sides, since the machine has other things to do.
        normal_ms, slowest_ms = (max(map(median, waits)) for waits in (before, afterwards))
        longest_s = max(max(waits) for waits in afterwards) / 1000
    return [
        *promises,
        at_most("… median of the next 20 requests ÷ median before", slowest_ms / normal_ms, 2),
        at_most("… longest wait of any of them, s", longest_s, 3),
    ]


def _draft(limits):
    """A model for which a larger batch is always better, so that all eight run as one."""
    parameters = {"faults": True, "base_ms": 2.0, "per_token_ms": 0.0}
    return draft_of("device_stub", MODEL, limits=limits, parameters=parameters)


def _cell(fleet, switch, stage):
    """One fault: tried again where the receipts tell that the rows were not together."""
    for _ in range(_TRIES):
        culprit, neighbours, texts = _run_together(fleet, f"!{switch}@{stage}")
        if (shared := _were_together(culprit, neighbours, switch)) == _NEIGHBOURS:
            break
    right = sum(
        reply.status == "ok" and data_of(reply, "digest") == digests([text])
        for text, reply in zip(texts, neighbours, strict=True)
    )
    name = culprit.error["name"] if culprit.error else culprit.status
    found = f"{right} of {shared} right, {name}"
    expected = f"{_NEIGHBOURS} of {_NEIGHBOURS} right, {SWITCHES[switch]}"
    return equals(
        f"{switch} in {stage}: neighbours that shared the process, culprit", found, expected
    )


def _run_together(fleet, fault):
    """Eight requests that wait inside the device process while a ninth runs."""
    blocker = fleet.submit(MODEL, "!sleep:200")
    until(lambda: fleet.pending(MODEL) == 1, "the device is busy")
    texts = [f"neighbour {at} of {fault}"[:24].ljust(24) for at in range(_NEIGHBOURS)]
    rows = [*texts[:_CULPRIT_AT], fault.ljust(24), *texts[_CULPRIT_AT:]]
    ids = fleet.submit_all(MODEL, [{"text": row} for row in rows], together=True)
    replies = fleet.replies(MODEL, ids)
    assert fleet.reply(MODEL, blocker).status == "ok"
    return replies.pop(_CULPRIT_AT), replies, texts


def _were_together(culprit, neighbours, switch):
    """How many neighbours were in the device process together with the culprit."""
    if switch in _CRASHES:
        return sum(r.receipt["attempt"] == culprit.receipt["attempt"] == 2 for r in neighbours)
    batch = culprit.receipt["batch"]
    if ":" in batch:
        return sum(reply.receipt["batch"] == batch for reply in neighbours)
    return sum(reply.receipt["batch"].startswith(f"{batch}:") for reply in neighbours)


def _one_after_another(fleet):
    """How long each of the next requests takes, in milliseconds."""
    waits_ms = []
    for at in range(_AFTERWARDS):
        began = perf_counter()
        assert fleet.ask(MODEL, f"after {at}").status == "ok"
        waits_ms.append((perf_counter() - began) * 1000)
    return waits_ms
