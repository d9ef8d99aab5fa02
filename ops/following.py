"""How far the programs of a fleet are with the deploy record of a model.

Every router announces the records by which it acts, every worker that of each model it serves. The
server rejects what a program does by an older one, so a silent program does no harm.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..broker import fleet, membership
from ..service.clock import Clock
from ..wire.announcements import WorkerAnnouncement
from ..wire.deployment import Stamp
from ..wire.errors import BatchfleetError
from .deployment import Operator
from .survey import read_routers
from .verdict import POLL_S, Pause

ROUTER, WORKER = "router", "worker"


class NotFollowedError(BatchfleetError):
    """Programs that are alive act by an older deploy record, or by one of a model that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A router, or a worker of a model.

    Attributes:
        name: its name.
        kind: `ROUTER` or `WORKER`.
        stamp: of the record of the model by which it acts; None where it has none.
        is_silent: it has lost its heartbeat.
    """

    name: str
    kind: str
    stamp: Stamp | None = None
    is_silent: bool = False

    def to_json(self) -> dict[str, Any]:
        """The map that `--json` prints."""
        epoch = None if self.stamp is None else self.stamp.epoch
        return {"name": self.name, "kind": self.kind, "epoch": epoch, "silent": self.is_silent}


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The programs at one moment, and the record in force; None where there is none any more."""

    stamp: Stamp | None
    programs: Sequence[Follower]

    @property
    def behind(self) -> list[str]:
        """Those alive that act by another record, or still have one of a model that is gone."""
        return [
            f"{one.kind} {one.name}"
            for one in self.programs
            if not one.is_silent and one.stamp != self.stamp
        ]

    @property
    def silent(self) -> list[str]:
        """Those that are left out, since they have lost their heartbeat."""
        return [f"{one.kind} {one.name}" for one in self.programs if one.is_silent]

    @property
    def has_router(self) -> bool:
        """Whether a router is alive."""
        return any(one.kind == ROUTER and not one.is_silent for one in self.programs)

    def require_followed(self, wait_s: float) -> None:
        """Check that no live program is behind.

        Raises:
            NotFollowedError: some are; the text names them.
        """
        if self.behind:
            raise NotFollowedError(
                f"did not follow within {wait_s:g} s: {', '.join(self.behind)}. The change is "
                "active; the server rejects what they do under an older deploy record"
            )


def read_following(operator: Operator, model: str, workers: Collection[str] = ()) -> Following:
    """How far the programs are now.

    Args:
        operator: of the fleet.
        model: which model.
        workers: of the model, in addition to those that the server lists.

    Raises:
        ServerError: the server failed.
    """
    executor, keys = operator.executor, operator.keys(model)
    # In this order: a program that announces this record has seen nothing older.
    stamp = executor.run(fleet.deploy_stamp(keys))
    found = [
        Follower(
            name=name, kind=ROUTER, stamp=(acts_by or {}).get(model), is_silent=acts_by is None
        )
        for name, acts_by in read_routers(executor, operator.namespace).items()
    ]
    living, lost = executor.run_all([membership.living(keys), membership.lost(keys)])
    names = sorted({*workers, *living, *lost})
    announced = executor.run_all([membership.announcement(keys, name) for name in names])
    for name, fields in zip(names, announced, strict=True):
        # One that left is listed as lost, but has no hash; that of a dead one is kept for a while.
        if fields or name in living:
            is_silent = not fields or name in lost
            acts_by = WorkerAnnouncement.from_fields(fields).stamp
            found.append(Follower(name=name, kind=WORKER, stamp=acts_by, is_silent=is_silent))
    return Following(stamp=stamp, programs=found)


def await_following(
    read: Callable[[], Following],
    wait_ms: float,
    clock: Clock,
    pause: Pause,
    report: Callable[[Following], object],
) -> Following:
    """How far the programs are, once no live one is behind or the time is up.

    Args:
        read: how far they are now.
        wait_ms: how long to wait for them.
        clock: for the time.
        pause: waits between two reads.
        report: called with what was found, before each pause.
    """
    give_up_ms = clock.monotonic_ms() + wait_ms
    while True:
        found = read()
        if not found.behind or clock.monotonic_ms() >= give_up_ms:
            return found
        report(found)
        pause(POLL_S)
