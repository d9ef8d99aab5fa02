"""What is read of a fleet to decide about a roll."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import orjson

from ...broker import fleet, membership, requests, rolls
from ...wire.announcements import READY, REFUSED, WorkerAnnouncement
from ...wire.deployment import Deployment
from ...wire.errors import SettingsError
from ...wire.keys import ModelKeys
from ...wire.reading import from_json
from ...wire.stats import VersionStats
from ..deployment import Operator
from .deciding import Observation, leaving_version
from .judging import Window
from .state import Phase, RollState, read_counts, read_state

# Stretches of a step that are compared; each is a tenth of the time that it is held, …
_WINDOWS_MAX = 12
_WINDOWS_IN_HOLD = 10
# … but not shorter than a few batches, nor longer than a person would wait.
_WINDOW_MS_MIN, _WINDOW_MS_MAX = 2_000, 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A roll with what was observed of it, all at nearly the same moment.

    `moments` are the keys under which counts of its step are kept, the oldest first.
    """

    deployment: Deployment
    state: RollState
    seen: Observation
    now_ms: float
    moments: tuple[str, ...] = ()
    stale_moments: tuple[str, ...] = ()


def look_at(operator: Operator, model: str) -> Look | None:
    """Read what a decision about a roll needs; None where the model has none.

    Raises:
        SettingsError: a foreign hand wrote the deploy record, or the state of the roll.
        ServerError: the server failed.
    """
    keys = operator.keys(model)
    raw, living, counts, kept, now_ms = operator.executor.run_all(
        [
            fleet.deploy_hash(keys),
            membership.living(keys),
            fleet.stats(keys),
            rolls.counts(keys),
            fleet.server_time(),
        ]
    )
    deployment = Deployment.from_hash(model, raw)
    state = None if deployment is None else read_state(model, deployment.roll)
    if deployment is None or state is None:
        return None
    moments = moments_of(state, kept)
    return Look(
        deployment=deployment,
        state=state,
        seen=observe(
            operator,
            deployment,
            state,
            _Read(living, counts, windows_of(state, [kept[name] for name in moments])),
        ),
        now_ms=now_ms,
        moments=moments,
        stale_moments=tuple(sorted(set(kept) - set(moments[-_WINDOWS_MAX:]))),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    living: list[str]
    counts: Mapping[str, VersionStats]
    windows: list[Window]


def first_look(operator: Operator, deployment: Deployment, state: RollState) -> Look:
    """The same for a roll that is not written yet.

    Raises:
        ServerError: the server failed.
    """
    keys = operator.keys(deployment.model)
    living, now_ms = operator.executor.run_all([membership.living(keys), fleet.server_time()])
    seen = observe(operator, deployment, state, _Read(living, {}, []))
    return Look(deployment=deployment, state=state, seen=seen, now_ms=now_ms)


def observe(
    operator: Operator, deployment: Deployment, state: RollState, read: _Read
) -> Observation:
    """Put together what was read, and what follows from it that has to be read."""
    keys, executor = operator.keys(deployment.model), operator.executor
    record = deployment.versions.get(leaving_version(state))
    streams = [] if record is None else fleet.queue_streams(keys, record)
    lengths = [requests.stream_length(stream) for stream in streams]
    announced = [membership.announcement(keys, worker) for worker in read.living]
    answers = executor.run_all([*announced, *lengths]) if announced or lengths else []
    said = {
        name: WorkerAnnouncement.from_fields(fields)
        for name, fields in zip(read.living, answers, strict=False)
    }
    heard = {
        name: one if one.stamp is not None and one.stamp.epoch >= state.epoch else None
        for name, one in said.items()
    }
    return Observation(
        epoch=deployment.epoch,
        stable=deployment.stable,
        offered=frozenset(deployment.versions),
        living={
            name: "" if one is None else one.state_of(state.target) for name, one in heard.items()
        },
        reasons={
            name: one.reason_of(state.target)
            for name, one in heard.items()
            if one is not None and one.state_of(state.target) == REFUSED
        },
        serving=frozenset(
            name for name, one in said.items() if one.state_of(state.source) == READY
        ),
        holding=frozenset(
            name
            for name, one in said.items()
            if one.stamp is None
            or one.stamp.epoch < deployment.epoch
            or one.state_of(leaving_version(state))
        ),
        counts=read.counts,
        windows=read.windows,
        left=sum(answers[len(announced) :]),
    )


def moment_of(state: RollState, now_ms: float) -> str:
    """The key of the present stretch of a step; empty where none is to be compared."""
    if state.phase is not Phase.SHIFTING:
        return ""
    held_ms = 1000 * state.plan.hold_s
    window_ms = min(max(_WINDOW_MS_MIN, held_ms / _WINDOWS_IN_HOLD), _WINDOW_MS_MAX)
    return f"{_step_prefix(state)}{int(now_ms / window_ms):015d}"


def _step_prefix(state: RollState) -> str:
    return f"{state.roll}:{state.step}:"


def moments_of(state: RollState, kept: Iterable[str]) -> tuple[str, ...]:
    """The keys of counts of the present step, the oldest first."""
    return tuple(sorted(name for name in kept if name.startswith(_step_prefix(state))))


def windows_of(state: RollState, kept: Iterable[bytes]) -> list[Window]:
    """What both versions did between the moments of a step; what nobody of us wrote is left out."""
    snapshots = [state.base]
    for raw in kept:
        try:
            snapshots.append(read_counts("counts", from_json("counts", raw)))
        except SettingsError:
            continue
    return [_between(state, earlier, later) for earlier, later in pairwise(snapshots)]


def _between(
    state: RollState, earlier: Mapping[str, VersionStats], later: Mapping[str, VersionStats]
) -> Window:
    none = VersionStats()
    stable, canary = (
        later.get(name, none).minus(earlier.get(name, none))
        for name in (state.source, state.target)
    )
    return Window(stable=stable, canary=canary)


def keep_moment(operator: Operator, look: Look) -> None:
    """Keep what both versions have done so far, if the present stretch has begun just now.

    Raises:
        ServerError: the server failed.
    """
    moment = moment_of(look.state, look.now_ms)
    if not moment or moment in look.moments:
        return
    both = {
        name: asdict(stats)
        for name, stats in look.seen.counts.items()
        if name in (look.state.source, look.state.target)
    }
    keys: ModelKeys = operator.keys(look.deployment.model)
    commands: list[Any] = rolls.keep_counts(keys, moment, orjson.dumps(both), look.stale_moments)
    operator.executor.run_all(commands)
