"""Whether the device process has outrun a time limit, in which stage, and with whom. Pure.

A version is loaded on the device thread, so while one is, everything else waits behind it and only
the load is timed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from .state import HeldRequest, Lane, Phase, RunningBatch

# A start takes a second on an idle machine; one that is busy may need many times as long.
_START_MS = 30_000.0


class Overrun(NamedTuple):
    """A stage that took too long, and the lane whose code it is."""

    stage: str
    lane: Lane


def of_load(lane: Lane, spent_ms: float) -> Overrun | None:
    """`load`, where it takes too long."""
    return Overrun("load", lane) if spent_ms > lane.record.limits.load_ms else None


def of_start(waiting: Lane, spent_ms: float) -> Overrun | None:
    """The start of a process for a version that waits: no part of its load, and no code of its."""
    return of_load(waiting, spent_ms) if spent_ms > _START_MS else None


def of_batch(batch: RunningBatch, now_ms: float) -> Overrun | None:
    """`predict`, where the batch on the device takes too long; preparing counts where it does."""
    limits = batch.lane.record.limits
    allowed_ms = limits.predict_ms + (0 if batch.rows else limits.preprocess_ms)
    return Overrun("predict", batch.lane) if now_ms - batch.started_ms > allowed_ms else None


def of_sides(requests: Iterable[HeldRequest], silent_ms: float) -> Overrun | None:
    """`preprocess` or `postprocess`, where nothing has come of one for too long."""
    for held in requests:
        limits = held.lane.record.limits
        if held.phase is Phase.PREPARING and silent_ms > limits.preprocess_ms:
            return Overrun("preprocess", held.lane)
        if held.is_finishing and silent_ms > limits.postprocess_ms:
            return Overrun("postprocess", held.lane)
    return None


def of_one(not_on_device: Iterable[HeldRequest], now_ms: float) -> Overrun | None:
    """`preprocess`, where one takes too long by itself, however much comes of the others.

    It has the time of all that were being prepared when it was sent, since it may wait for them.
    """
    for held in not_on_device:
        if held.phase is Phase.PREPARING and now_ms > held.prepare_by_ms:
            return Overrun("preprocess", held.lane)
    return None
