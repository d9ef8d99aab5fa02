"""The state after an event, and what the deploy record has to say then. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...wire.canary import Canary, WorkerChoice
from .deciding import Observation, decide, handed_over
from .plan import WORKER_BY_WORKER
from .state import ROLL_FIELD, Event, Past, Phase, RollState, moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a roll changes: the event, in words, by whom."""

    event: Event
    reason: str = ""
    by: str = ""


def changed(state: RollState, cause: Cause, seen: Observation, now_ms: float) -> RollState:
    """The state after an event, ready for what follows from it.

    Args:
        state: the roll.
        cause: what happened.
        seen: what was observed.
        now_ms: the server's clock.

    Raises:
        TransitionError: the table does not allow it.
    """
    after = _after(state, cause, seen, int(now_ms))
    if after.phase is Phase.LOADING and decide(after, seen, now_ms).event is Event.READY:
        # Nothing has to be loaded: one change of the record is enough.
        return _after(after, Cause(event=Event.READY, by=cause.by), seen, int(now_ms))
    return after


def _after(state: RollState, cause: Cause, seen: Observation, now_ms: int) -> RollState:
    step = state.step + 1 if cause.event is Event.HELD else state.step
    if cause.event is Event.READY:
        step = max(step, 1)
    past = Past(
        at_ms=now_ms,
        event=cause.event.value,
        phase=state.phase,
        step=step,
        reason=cause.reason,
        by=cause.by,
    )
    after = replace(moved(state, cause.event, past), step=step, since_ms=now_ms)
    if cause.event is Event.READY:
        return _shifting(state, after, seen, now_ms)
    if after.phase is Phase.LOADING:
        is_served = bool(seen.ready) and cause.event is not Event.LOST
        return replace(
            _changing_over(after, seen),
            weight=after.weight if is_served else 0.0,
            epoch=seen.epoch + 1,
            due_ms=now_ms + round(1000 * after.plan.wait_s),
        )
    if after.phase is Phase.PAUSED:
        return replace(after, due_ms=0)
    return replace(after, weight=0.0, due_ms=now_ms)


def _shifting(state: RollState, after: RollState, seen: Observation, now_ms: int) -> RollState:
    """A step begins, or goes on after an interruption: then what has been counted still counts."""
    goes_on = state.step and state.weight in (0.0, after.planned_weight)
    both = {name: seen.counts[name] for name in (state.source, state.target) if name in seen.counts}
    return replace(
        after,
        weight=after.planned_weight,
        due_ms=now_ms + round(1000 * after.plan.hold_s),
        base=state.base if goes_on else both,
        first=state.first if state.step else both,
    )


def _changing_over(state: RollState, seen: Observation) -> RollState:
    """Worker by worker: those that are to have the target now; at most one more than before."""
    if state.plan.strategy != WORKER_BY_WORKER:
        return state
    kept = [name for name in state.workers if name in seen.living]
    is_short = len(kept) < handed_over(state, len(seen.living))
    others = sorted(set(seen.living) - set(kept), key=lambda name: (name not in seen.serving, name))
    more = others[:1] if is_short and seen.ready >= set(kept) else []
    cleared = [name for name in kept if name in state.cleared or name not in seen.holding]
    return replace(state, workers=(*kept, *more), cleared=tuple(cleared))


def begun(state: RollState, seen: Observation, now_ms: float) -> RollState:
    """A new roll, ready to be written, whose id, versions and plan are set."""
    past = Past(at_ms=int(now_ms), event="start", phase=Phase.LOADING, step=0, by=state.by)
    return replace(
        _changing_over(state, seen),
        epoch=seen.epoch + 1,
        since_ms=int(now_ms),
        due_ms=int(now_ms + 1000 * state.plan.wait_s),
        history=(past,),
    )


def record_fields(state: RollState, stable: str) -> dict[str, bytes]:
    """What the deploy record has to say while a roll is in this state; empty = no such field.

    Args:
        state: the roll.
        stable: the stable version by the record as it is.
    """
    canary = Canary(state.target, state.weight, state.roll).to_wire() if state.weight else b""
    fields = {ROLL_FIELD: state.to_wire(), "canary": canary, **_worker_fields(state)}
    if state.phase is Phase.DRAINING and stable == state.source:
        fields["stable"] = state.target.encode()
    if state.phase is Phase.ROLLING_BACK and stable == state.target:
        fields["stable"] = state.source.encode()
    return fields


def _worker_fields(state: RollState) -> Mapping[str, bytes]:
    fields = {f"workers:{state.source}": b"", f"workers:{state.target}": b""}
    if state.workers and not state.has_ended:
        source, target = f"workers:{state.source}", f"workers:{state.target}"
        fields[target] = WorkerChoice(frozenset(state.cleared)).to_wire()
        fields[source] = WorkerChoice(frozenset(state.workers), excludes=True).to_wire()
    return fields
