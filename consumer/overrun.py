"""Whether the device process has outrun a time limit, and in which stage. Pure.

A version is loaded on the device thread, so while one is, everything else waits behind it and only
the load is timed.
"""

from collections.abc import Iterable

from .held import Held, Lane, Phase, RunningBatch


def overrun_of_load(lane: Lane, silent_ms: float) -> str | None:
    """`load`, where the device process has said nothing of it for too long."""
    return "load" if silent_ms > lane.record.limits.load_ms else None


def overrun_of_batch(batch: RunningBatch, now_ms: float) -> str | None:
    """`predict`, where the batch on the device takes too long; preparing counts where it does."""
    limits = batch.lane.record.limits
    allowed_ms = limits.predict_ms + (0 if batch.rows else limits.preprocess_ms)
    return "predict" if now_ms - batch.started_ms > allowed_ms else None


def overrun_beside(requests: Iterable[Held], silent_ms: float) -> str | None:
    """`preprocess` or `postprocess`, where nothing has come of one for too long."""
    for held in requests:
        limits = held.lane.record.limits
        if held.phase is Phase.PREPARING and silent_ms > limits.preprocess_ms:
            return "preprocess"
        finishing = held.phase is Phase.PREPARED and held.rows_left == 0
        if finishing and silent_ms > limits.postprocess_ms:
            return "postprocess"
    return None
