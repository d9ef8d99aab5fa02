"""Rolls and what is observed of them, for tests."""

from bisect import bisect_left

from batchfleet.ops.rolls.changing import begun
from batchfleet.ops.rolls.deciding import Observation
from batchfleet.ops.rolls.judging import Window
from batchfleet.ops.rolls.plan import Plan
from batchfleet.ops.rolls.state import RollState
from batchfleet.wire.stats import LATENCY_BUCKETS, LATENCY_EDGES_MS, VersionStats

T0_MS = 1_000_000


def stats(latencies_ms=(), *, model=0, fleet=0, caller=0, device_ms=0.0):
    """Counts of answers with these latencies, and of errors; one row each."""
    buckets = [0] * LATENCY_BUCKETS
    for latency in latencies_ms:
        buckets[bisect_left(LATENCY_EDGES_MS, latency)] += 1
    count = len(latencies_ms)
    return VersionStats(
        ok=count,
        caller=caller,
        fleet=fleet,
        model=model,
        latency=tuple(buckets),
        rows=count + model,
        device_ms=device_ms or 5.0 * (count + model),
    )


def new_roll(plan=None, *, seen=None, now_ms=T0_MS):
    """A roll of m from 1 to 2 that has just begun."""
    state = RollState(roll="ab12", model="m", source="1", target="2", plan=plan or Plan(), by="me")
    return begun(state, seen or observed(), now_ms)


def observed(said=None, *, stable="1", offered=("1", "2"), serving=("w1", "w2"), **more):
    """An observation; `said` maps each worker to what it says of the target."""
    return Observation(
        epoch=7,
        stable=stable,
        offered=frozenset(offered),
        living={"w1": "", "w2": ""} if said is None else said,
        serving=frozenset(serving),
        holding=frozenset(more.pop("holding", ())),
        **more,
    )


def even_windows(stable, canary, number=4):
    """Windows in each of which both did the same."""
    return [Window(stable=stable, canary=canary)] * number
