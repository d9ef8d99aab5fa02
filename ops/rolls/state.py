"""The state of a roll and its table; what is not in the table is refused.

The state is the field `roll` of the deploy record, so that one compare-and-set changes both. Pure.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import orjson

from ...wire.errors import BatchfleetError, SettingsError
from ...wire.names import is_name, shown
from ...wire.numbers import Range, shown_value
from ...wire.reading import as_map, from_json
from ...wire.stats import LATENCY_BUCKETS, VersionStats
from .plan import STEPS_MAX, Plan, read_plan

ROLL_FIELD = "roll"
_HISTORY_MAX = 64
_REASON_CHARACTERS = 1000
_WORKERS_MAX = 10_000
_TIME = Range(0, (1 << 53) - 1)
_COUNT = Range(0, (1 << 63) - 1)
_DEVICE_MS = Range(0, 1e18, whole=False)
_WEIGHT = Range(0, 100, whole=False)


class Phase(StrEnum):
    """Where a roll stands."""

    LOADING = "loading"
    SHIFTING = "shifting"
    PAUSED = "paused"
    DRAINING = "draining"
    ROLLING_BACK = "rolling_back"
    REFUSING = "refusing"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"


class Event(StrEnum):
    """What can happen to a roll; the last four are commands of an operator."""

    ONE_MORE = "one_more"  # the next worker is to load the version
    READY = "ready"  # enough workers have loaded it
    UNLOADABLE = "unloadable"  # they refuse it, or take too long, before it had any traffic
    HELD = "held"  # the step was long enough and kept the limits
    HELD_LAST = "held_last"  # the same of the last step
    LOST = "lost"  # no worker is ready any more, though some are for the old version
    BROKEN = "broken"  # a limit is broken, or the record does not allow the roll any more
    TAKEN_OVER = "taken_over"  # somebody made the version the stable one
    DRAINED = "drained"  # nothing waits for the version that goes
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"


P, E = Phase, Event

TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = {
    P.LOADING: {
        E.ONE_MORE: P.LOADING,
        E.READY: P.SHIFTING,
        E.UNLOADABLE: P.REFUSING,
        E.BROKEN: P.ROLLING_BACK,
        E.TAKEN_OVER: P.DRAINING,
        E.PAUSE: P.PAUSED,
        E.ROLL_BACK: P.ROLLING_BACK,
    },
    P.SHIFTING: {
        E.HELD: P.LOADING,
        E.HELD_LAST: P.DRAINING,
        E.LOST: P.LOADING,
        E.BROKEN: P.ROLLING_BACK,
        E.TAKEN_OVER: P.DRAINING,
        E.PAUSE: P.PAUSED,
        E.PROMOTE: P.DRAINING,
        E.ROLL_BACK: P.ROLLING_BACK,
    },
    P.PAUSED: {
        E.BROKEN: P.ROLLING_BACK,
        E.TAKEN_OVER: P.DRAINING,
        E.RESUME: P.LOADING,
        E.PROMOTE: P.DRAINING,
        E.ROLL_BACK: P.ROLLING_BACK,
    },
    P.DRAINING: {E.DRAINED: P.COMPLETED, E.ROLL_BACK: P.ROLLING_BACK},
    P.ROLLING_BACK: {E.DRAINED: P.ROLLED_BACK},
    P.REFUSING: {E.DRAINED: P.REFUSED},
    P.COMPLETED: {},
    P.ROLLED_BACK: {},
    P.REFUSED: {},
}
ENDS = frozenset(phase for phase, events in TRANSITIONS.items() if not events)


class TransitionError(BatchfleetError):
    """The table does not allow it now; the text says where the roll stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One change of a roll: when (ms, server's clock), to which phase and step, why, by whom."""

    at_ms: int
    event: str
    phase: Phase
    step: int
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollState:
    """A roll at one moment. Times are milliseconds of the server's clock.

    Attributes:
        roll: its id; also the salt by which requests are divided.
        model: of which model.
        source: the version that is stable at its start.
        target: the version that is to become the stable one.
        plan: what the operator wants.
        phase: where it stands.
        step: the step of the plan in force, from 1; 0 before traffic has moved.
        weight: percent of the traffic that the target gets at present, while it is no stable one.
        since_ms: begin of the phase or step.
        due_ms: end of the time that it is held, or that workers have to load.
        reason: why it stands there, where that is not the plan.
        by: who started it.
        epoch: of the record by which workers were asked for the target; what one says by an older
            record is of an earlier try.
        workers: worker by worker: those that are to have the target in place of the source.
        cleared: those of them that have let go of the source, and may load the target.
        base: counts of both versions at the begin of the step.
        first: counts of both at the begin of the roll.
        history: its changes, the newest last.
    """

    roll: str
    model: str
    source: str
    target: str
    plan: Plan = field(default_factory=Plan)
    phase: Phase = Phase.LOADING
    step: int = 0
    weight: float = 0.0
    since_ms: int = 0
    due_ms: int = 0
    reason: str = ""
    by: str = ""
    epoch: int = 0
    workers: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    base: Mapping[str, VersionStats] = field(default_factory=dict)
    first: Mapping[str, VersionStats] = field(default_factory=dict)
    history: tuple[Past, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.phase in ENDS

    @property
    def planned_weight(self) -> float:
        """Percent of the step in force; 0 before the first one."""
        return self.plan.weights[self.step - 1] if self.step else 0.0

    def to_json(self) -> dict[str, Any]:
        """The map that `--json` prints."""
        plain = asdict(self)
        plain["from"], plain["to"] = plain.pop("source"), plain.pop("target")
        return plain

    def to_wire(self) -> bytes:
        """JSON, the value of the field `roll`."""
        return orjson.dumps(self.to_json())


def moved(state: RollState, event: Event, past: Past) -> RollState:
    """The state after `event`, which `past` describes; phase alone is changed.

    Raises:
        TransitionError: the table does not allow it.
    """
    phase = TRANSITIONS[state.phase].get(event)
    if phase is None:
        done = "has ended" if state.has_ended else f"is {state.phase.replace('_', ' ')}"
        raise TransitionError(
            f"the roll of {state.model} from {state.source} to {state.target} {done}"
            f"{': ' + state.phase.replace('_', ' ') if state.has_ended else ''}; "
            f"it cannot {_VERBS.get(event, event.replace('_', ' '))}"
        )
    entry = replace(past, event=event.value, phase=phase, reason=past.reason[:_REASON_CHARACTERS])
    history = (*state.history, entry)[-_HISTORY_MAX:]
    return replace(state, phase=phase, reason=entry.reason, history=history)


_VERBS = {
    Event.PAUSE: "be paused",
    Event.RESUME: "be resumed",
    Event.PROMOTE: "be promoted",
    Event.ROLL_BACK: "be rolled back",
}


def read_state(model: str, raw: bytes) -> RollState | None:
    """Read the field `roll` of a deploy record; None where it is empty.

    Raises:
        SettingsError: no roll of ours wrote it: it is not followed.
    """
    if not raw:
        return None
    try:
        return _read(model, as_map("a roll", from_json("a roll", raw)))
    except SettingsError as error:
        raise SettingsError(f"{model}: the state of its roll is not followed: {error}") from error


_NAMES = frozenset(
    {"from", "to", *(item.name for item in fields(RollState))} - {"source", "target"}
)


def _read(model: str, wire: Mapping[str, Any]) -> RollState:
    if set(wire) != _NAMES:
        odd = ", ".join(sorted(map(str, set(wire) ^ _NAMES)))
        raise SettingsError(f"{shown(odd)} missing or unknown")
    state = RollState(
        roll=_name(wire, "roll"),
        model=_name(wire, "model"),
        source=_name(wire, "from"),
        target=_name(wire, "to"),
        plan=read_plan(as_map("plan", wire["plan"])),
        phase=_phase(wire["phase"]),
        step=_number("step", wire["step"], Range(0, STEPS_MAX)),
        weight=_number("weight", wire["weight"], _WEIGHT),
        since_ms=_number("since_ms", wire["since_ms"], _TIME),
        due_ms=_number("due_ms", wire["due_ms"], _TIME),
        reason=_text("reason", wire["reason"]),
        by=_text("by", wire["by"]),
        epoch=_number("epoch", wire["epoch"], _COUNT),
        workers=_workers("workers", wire["workers"]),
        cleared=_workers("cleared", wire["cleared"]),
        base=read_counts("base", wire["base"]),
        first=read_counts("first", wire["first"]),
        history=tuple(map(_read_past, _listed("history", wire["history"], _HISTORY_MAX))),
    )
    _check_whole(model, state)
    return state


def _check_whole(model: str, state: RollState) -> None:
    """What must hold between the parts, in each state that the table allows."""
    if state.model != model:
        raise SettingsError(f"it is one of {shown(state.model)}")
    if state.source == state.target:
        raise SettingsError("it goes to the version that it comes from")
    if not {*state.base, *state.first} <= {state.source, state.target}:
        raise SettingsError("it has counts of foreign versions")
    if not set(state.cleared) <= set(state.workers):
        raise SettingsError("it has cleared workers that do not change over")
    if state.step > len(state.plan.weights):
        raise SettingsError(f"step {state.step} of {len(state.plan.weights)}")
    if state.phase is Phase.SHIFTING and (not state.step or state.weight != state.planned_weight):
        raise SettingsError("it shifts a weight that its plan does not have")
    if state.weight not in (0.0, state.planned_weight, *state.plan.weights[: state.step]):
        raise SettingsError("it has a weight that its plan does not have yet")


def _phase(value: Any) -> Phase:
    if value not in list(Phase):
        raise SettingsError(f"phase is {shown_value(value)}, which the table does not know")
    return Phase(value)


def _name(wire: Mapping[str, Any], name: str) -> str:
    value = wire[name]
    if not isinstance(value, str) or not is_name(value):
        raise SettingsError(f"{name} is {shown_value(value)}, not a name")
    return value


def _workers(name: str, value: Any) -> tuple[str, ...]:
    listed = _listed(name, value, _WORKERS_MAX)
    return tuple(_name({"a worker": worker}, "a worker") for worker in listed)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _REASON_CHARACTERS:
        raise SettingsError(f"{name} is {shown_value(value)}, not a short text")
    return value


def _number(name: str, value: Any, limits: Range) -> Any:
    if fault := limits.fault(value):
        raise SettingsError(f"{name} is {shown_value(value)}; it {fault}")
    return limits.plain(value)


def _listed(name: str, value: Any, count_max: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > count_max:
        raise SettingsError(f"{name} is {shown_value(value)}, not a short list")
    return value


def read_counts(name: str, value: Any) -> dict[str, VersionStats]:
    """Counts of versions, as a state holds them.

    Raises:
        SettingsError: they are none.
    """
    return {version: _read_stats(one) for version, one in as_map(name, value).items()}


def _read_stats(value: Any) -> VersionStats:
    wire = as_map("counts", value)
    try:
        latency = _listed("latency", wire["latency"], LATENCY_BUCKETS)
        counts = {
            name: _number(name, wire[name], _COUNT)
            for name in ("ok", "caller", "fleet", "model", "rows")
        }
        device_ms = _number("device_ms", wire["device_ms"], _DEVICE_MS)
    except KeyError as error:
        raise SettingsError(f"counts lack {shown(str(error.args[0]))}") from None
    buckets = tuple(_number("latency", count, _COUNT) for count in latency)
    if len(buckets) != LATENCY_BUCKETS:
        raise SettingsError(f"latency has {len(buckets)} buckets of {LATENCY_BUCKETS}")
    return VersionStats(**counts, latency=buckets, device_ms=device_ms)


def _read_past(value: Any) -> Past:
    wire = as_map("history", value)
    try:
        return Past(
            at_ms=_number("at_ms", wire["at_ms"], _TIME),
            event=_text("event", wire["event"]),
            phase=_phase(wire["phase"]),
            step=_number("step", wire["step"], Range(0, STEPS_MAX)),
            reason=_text("reason", wire["reason"]),
            by=_text("by", wire["by"]),
        )
    except KeyError as error:
        raise SettingsError(f"history lacks {shown(str(error.args[0]))}") from None
