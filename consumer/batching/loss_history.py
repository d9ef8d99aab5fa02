"""Which versions have ended device processes, and which are to have one of their own.

Outlives a worker. Every time is an argument; the caller holds the worker's lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...models.agreement import AS_IN_MANIFEST
from ...wire.deployment import VersionRecord
from .state import Lane

_ENDS_MAX = 2
_REMEMBERED_MS = 600_000.0
_VERSIONS_MAX = 1000
_LOAD_TRIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What went on in a device process when it was lost.

    Attributes:
        reason: how it ended.
        loading: the lane that was being loaded.
        at_work: the lanes whose code ran.
        loaded: the lanes that were loaded, oldest first.
        is_shared: whether others have to do without the process as well.
        at_ms: when.
    """

    reason: str
    loading: Lane | None
    at_work: Sequence[Lane]
    loaded: Sequence[Lane]
    is_shared: bool
    at_ms: float


@dataclass(slots=True)
class _VersionHistory:
    """What is remembered of one version."""

    is_proven: bool = False  # it was loaded once
    memory_bytes: int = 0  # what it needed then
    is_suspect: bool = False  # it ended a process while it was loaded, or may have ended some
    ends_ms: list[float] = field(default_factory=list)  # when it ended processes, the latest few
    refused: VersionRecord | None = None  # as it was deployed when its load ended a process
    refusal: str = ""


class LossHistory:
    """Remembers losses of device processes, by version and environment."""

    def __init__(self) -> None:
        self._versions: dict[str, _VersionHistory] = {}
        # Of shared processes, by environment: ends while one was loaded, and while nobody was at
        # work.
        self._load_ends_ms: dict[str, list[float]] = {}
        self._idle_ends_ms: dict[str, list[float]] = {}

    def note_ready(self, name: str, memory_bytes: int = 0) -> None:
        """A version was loaded, and has grown its process by so much."""
        known = self._of(name)
        known.is_proven, known.memory_bytes = True, memory_bytes

    def memory_of(self, name: str) -> int:
        """Bytes that a version needed when it was loaded last; 0 where it never was."""
        return self._versions[name].memory_bytes if name in self._versions else 0

    def is_proven(self, name: str) -> bool:
        """Whether a version was loaded once."""
        return name in self._versions and self._versions[name].is_proven

    def refusal_of(self, name: str, record: VersionRecord) -> str:
        """Why a version is not to be tried until it is deployed again; empty where it may be."""
        known = self._versions.get(name)
        if known is None or known.refused is None or is_redeployed(known.refused, record):
            return ""
        return known.refusal

    def needs_own_process(self, name: str, environment: str, now_ms: float) -> bool:
        """Whether a version is to share no process with those that behave.

        It ended one while it was loaded, or twice of late in any way; or it was never loaded yet,
        and others like it have ended the shared one twice of late.
        """
        known = self._versions.get(name, _VersionHistory())
        if known.is_suspect or _is_often(known.ends_ms, now_ms):
            return True
        load_ends_ms = self._load_ends_ms.get(environment, [])
        return not known.is_proven and _is_often(load_ends_ms, now_ms)

    def note_loss(self, loss: Loss) -> bool:
        """Learn from the loss of a process; returns whether the culprit is known, or suspected.

        A version whose load ended it is refused. One that has been loaded before, or was not alone
        at work, may be innocent: it is tried once more, with nobody else in the process.
        """
        sole = loss.at_work[0] if len(loss.at_work) == 1 else None
        if sole is not None:
            self._note(self._of(sole.name).ends_ms, loss.at_ms)
        lane = loss.loading
        if lane is None:
            return self._suspect_youngest(loss)
        known = self._of(lane.name)
        known.is_suspect = True
        if loss.is_shared:
            environment = lane.record.environment
            self._note(self._load_ends_ms.setdefault(environment, []), loss.at_ms)
        lane.losses += 1
        if (lane is sole and not known.is_proven) or lane.losses >= _LOAD_TRIES:
            lane.refusal = f"it ended the device process while loading: {loss.reason}"
            known.refused, known.refusal = lane.record, lane.refusal
        return True

    def _suspect_youngest(self, loss: Loss) -> bool:
        """Suspect one where the shared process ends again and again while no code is at work.

        A thread that a model left running, say. The version that came last is tried first.
        """
        if loss.at_work or not loss.is_shared or len(loss.loaded) <= 1:
            return False
        lane = loss.loaded[-1]
        ends_ms = self._idle_ends_ms.setdefault(lane.record.environment, [])
        self._note(ends_ms, loss.at_ms)
        if not _is_often(ends_ms, loss.at_ms):
            return False
        ends_ms.clear()
        self._of(lane.name).is_suspect = True
        return True

    def _of(self, name: str) -> _VersionHistory:
        found = self._versions.pop(name, None) or _VersionHistory()
        self._versions[name] = found  # the latest one comes last
        if len(self._versions) > _VERSIONS_MAX:
            self._versions.pop(next(iter(self._versions)))
        return found

    def _note(self, ends_ms: list[float], at_ms: float) -> None:
        ends_ms.append(at_ms)
        del ends_ms[:-_ENDS_MAX]


def _is_often(ends_ms: Sequence[float], now_ms: float) -> bool:
    return sum(now_ms - at_ms <= _REMEMBERED_MS for at_ms in ends_ms) >= _ENDS_MAX


def is_redeployed(before: VersionRecord, after: VersionRecord) -> bool:
    """Whether this very version was deployed again between two records of it."""
    return before.deployed != after.deployed or has_other_manifest(before, after)


def has_other_manifest(before: VersionRecord, after: VersionRecord) -> bool:
    """Whether two records of one name come from different manifests.

    Limits may change while a version is loaded; what comes from its manifest may not.
    """
    return any(getattr(before, name) != getattr(after, name) for name in AS_IN_MANIFEST)
