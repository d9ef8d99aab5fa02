"""What comes next in a roll, from its state, what is observed, and the time. Pure.

Nothing is remembered beside the state: whoever looks decides the same, so any jobs worker can go on
where another one ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from ...wire.stats import VersionStats
from .judging import Judgement, Window, judge
from .plan import WORKER_BY_WORKER
from .state import Event, Phase, RollState


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was read of a fleet while a roll stands.

    Attributes:
        epoch: of the deploy record.
        stable: the stable version by the record.
        offered: the versions that are offered.
        living: the workers that serve the model, by what they say of the target: `ready`,
            `refused`, `loading`, or nothing (empty). One that acts by an older record says nothing.
        reasons: why workers refuse it.
        serving: the workers on which the source is ready.
        holding: the workers that have not let go yet of the version that they are to let go of.
        counts: what both versions have done in all.
        windows: what they did in each of some stretches of the step, the oldest first.
        left: entries of the version that is to go which nobody has answered yet.
    """

    epoch: int
    stable: str
    offered: frozenset[str]
    living: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    holding: frozenset[str] = frozenset()
    counts: Mapping[str, VersionStats] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    left: int = 0

    @property
    def ready(self) -> frozenset[str]:
        """The workers on which the target is ready."""
        return frozenset(name for name, said in self.living.items() if said == "ready")

    def since(self, state: RollState) -> Window:
        """What both versions did since the step began.

        Where the source gets no requests any more, what it did since the roll began is the measure.
        """
        none = VersionStats()
        gets_none = state.weight >= 100
        before = (state.first if gets_none else state.base).get(state.source, none)
        return Window(
            stable=self.counts.get(state.source, none).minus(before),
            canary=self.counts.get(state.target, none).minus(state.base.get(state.target, none)),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens next, None = nothing yet; and why, in words for people.

    `withdraws`: the version that leaves has nothing to do any more, and is to be taken out.
    """

    event: Event | None
    reason: str = ""
    withdraws: bool = False

    @property
    def is_due(self) -> bool:
        """Whether somebody has to do something."""
        return self.event is not None or self.withdraws


def decide(state: RollState, seen: Observation, now_ms: float) -> Decision:
    """What happens next in a roll.

    Args:
        state: the roll.
        seen: what was observed.
        now_ms: the server's clock.
    """
    if state.has_ended:
        return Decision(None, state.reason)
    if state.phase in (Phase.DRAINING, Phase.ROLLING_BACK, Phase.REFUSING):
        return _drain(state, seen)
    if seen.stable == state.target:
        return Decision(Event.TAKEN_OVER, f"{state.target} was made the stable version")
    if seen.stable != state.source:
        return Decision(Event.BROKEN, f"{seen.stable} was made the stable version")
    if state.target not in seen.offered:
        return Decision(Event.BROKEN, f"{state.target} was taken out of service")
    found = judged(state, seen)
    if found.broken:
        return Decision(Event.BROKEN, "; ".join(found.broken))
    if state.phase is Phase.PAUSED:
        return Decision(None, "paused")
    return (_load if state.phase is Phase.LOADING else _shift)(state, seen, now_ms)


def leaving_version(state: RollState) -> str:
    """The version that is to go: from all workers, or worker by worker from some."""
    return state.target if state.phase in (Phase.ROLLING_BACK, Phase.REFUSING) else state.source


def _drain(state: RollState, seen: Observation) -> Decision:
    version = leaving_version(state)
    if version in seen.offered and version != seen.stable:
        if seen.left:
            return Decision(None, f"{seen.left} requests of {version} are still to be answered")
        return Decision(None, f"{version} is to be taken out", withdraws=True)
    # Where there is no room for both, the one that comes has to wait for the one that goes.
    if state.workers and seen.holding:
        return Decision(None, f"{len(seen.holding)} workers have not let go of {version} yet")
    return Decision(Event.DRAINED, state.reason)


def _load(state: RollState, seen: Observation, now_ms: float) -> Decision:
    wanted = set(state.workers or seen.living)
    ready = seen.ready & wanted
    may_serve = sum(seen.living.get(name) != "refused" for name in wanted)
    if state.plan.strategy == WORKER_BY_WORKER:
        is_short = ready == wanted and len(wanted) < handed_over(state, len(seen.living))
        has_let_go = bool(wanted - set(state.cleared) - seen.holding)
        if is_short or has_let_go or wanted - set(seen.living):
            return Decision(Event.ONE_MORE, "the next worker is to load it")
        enough = len(wanted)
    else:
        enough = state.plan.min_ready or max(1, min(len(seen.serving), may_serve))
    if len(ready) >= enough:
        return Decision(Event.READY, f"{len(ready)} workers are ready")
    return _not_ready(state, seen, now_ms, _Voices(wanted, len(ready), may_serve, enough))


class _Voices(NamedTuple):
    """Workers that are to have the target; how many have, may, and must."""

    wanted: set[str]
    ready: int
    may_serve: int
    enough: int


def _not_ready(state: RollState, seen: Observation, now_ms: float, said: _Voices) -> Decision:
    # What nobody has had a request of yet is refused; else it goes back.
    failed = Event.BROKEN if state.weight else Event.UNLOADABLE
    reasons = "; ".join(sorted({seen.reasons[name] for name in said.wanted & set(seen.reasons)}))
    if reasons and said.may_serve < said.enough:
        refused = len(said.wanted) - said.may_serve
        return Decision(
            failed, f"{refused} of {len(said.wanted)} workers refuse {state.target}: {reasons}"
        )
    text = f"{said.ready} of {said.enough} workers are ready"
    if now_ms < state.due_ms:
        return Decision(None, text)
    late = f"{text} after {state.plan.wait_s:g} s"
    return Decision(failed, f"{late}: {reasons}" if reasons else late)


def handed_over(state: RollState, workers: int) -> int:
    """How many of the workers are to have the target in the step that is prepared or in force.

    One at least, and one keeps the source until that gets no requests any more.
    """
    weight = state.plan.weights[max(state.step, 1) - 1]
    return max(1, min(workers - 1, ceil(weight * workers / 100)))


def _shift(state: RollState, seen: Observation, now_ms: float) -> Decision:
    if not seen.ready:
        text = f"no worker is ready for {state.target} any more"
        return Decision(Event.LOST if seen.serving else None, text)
    doubts = "; ".join(judged(state, seen).doubtful)
    if now_ms < state.due_ms:
        return Decision(None, doubts)
    if lacking := _lacking(state, seen):
        return Decision(None, lacking)
    if doubts:
        return Decision(None, f"held until it is certain: {doubts}")
    is_last = state.step == len(state.plan.weights)
    return Decision(Event.HELD_LAST if is_last else Event.HELD)


def _lacking(state: RollState, seen: Observation) -> str:
    """Which samples a step lacks, in words; empty where it has enough."""
    total, needed = seen.since(state), state.plan.min_samples
    counts = {state.target: total.canary.total}
    if state.weight < 100:
        counts[state.source] = total.stable.total
    few = [f"{count} of {needed} samples of {name}" for name, count in counts.items()]
    return "" if min(counts.values()) >= needed else "waits for " + ", ".join(few)


def judged(state: RollState, seen: Observation) -> Judgement:
    """How the step stands against its limits; whether it is paused or not: nobody wants errors."""
    if not state.weight:
        return Judgement()
    return judge(state.plan, seen.since(state), seen.windows, state.weight)
