"""What the live workers say of a version that is being put in service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..broker import fleet, membership
from ..service.clock import Clock
from ..wire.announcements import READY, REFUSED, WorkerAnnouncement
from ..wire.errors import BatchfleetError
from .deployment import Operator

POLL_S = 0.1

Pause = Callable[[float], object]
"""Waits for so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How a command waits: `report` is called with a line of progress before each pause."""

    clock: Clock
    pause: Pause
    report: Callable[[str], object]


class AllRefuseError(BatchfleetError):
    """Every live worker refuses a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which live workers of a fleet serve or refuse one version.

    Only those that act by the record which asks for it are heard: what others say may be of an
    earlier try.

    Attributes:
        workers: how many of them have read the model's record, be it an earlier one.
        elsewhere: how many have not so far, where none has.
        ready: how many serve it.
        refused: worker → why it refuses.
        serving: how many serve the version that it is to replace.
        said: worker → what it announces, be it of an earlier record.
    """

    workers: int = 0
    elsewhere: int = 0
    ready: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    serving: int = 0
    said: Mapping[str, WorkerAnnouncement] = field(default_factory=dict)

    @property
    def may_serve(self) -> int:
        """How many of the model's workers serve it, or have not said that they refuse."""
        return self.workers - len(self.refused)

    @property
    def is_open(self) -> bool:
        """Whether no worker serves it, and not all have refused it yet."""
        return not self.ready and (self.may_serve > 0 or self.is_unseen)

    @property
    def is_unseen(self) -> bool:
        """Whether there are workers, and none of them has read the model's record yet."""
        return not self.workers and bool(self.elsewhere)

    @property
    def all_refuse(self) -> bool:
        """Whether there are workers, and none of them can serve it."""
        return bool(self.refused) and not self.ready and not self.is_open

    @property
    def reasons(self) -> str:
        """Why workers refuse it, each reason once."""
        return "; ".join(sorted(set(self.refused.values())))


def read_verdict(
    operator: Operator, model: str, version: str, *, epoch: int = 0, stable: str = ""
) -> Verdict:
    """What the workers have announced so far.

    Args:
        operator: of the fleet.
        model: which model.
        version: which version.
        epoch: that of the record which asks for it.
        stable: the version that it is to replace; empty for none.

    Raises:
        ServerError: the server failed.
    """
    executor, keys = operator.executor, operator.keys(model)
    living = executor.run(membership.living(keys))
    announced = executor.run_all([membership.announcement(keys, worker) for worker in living])
    said = dict(zip(living, map(WorkerAnnouncement.from_fields, announced), strict=True))
    heard = {
        worker: one
        for worker, one in said.items()
        if one.stamp is not None and one.stamp.epoch >= epoch
    }
    return Verdict(
        workers=len(living),
        elsewhere=0 if living else _workers_elsewhere(operator),
        ready=sum(one.state_of(version) == READY for one in heard.values()),
        refused={
            worker: one.reason_of(version)
            for worker, one in heard.items()
            if one.state_of(version) == REFUSED
        },
        serving=sum(one.state_of(stable) == READY for one in said.values()) if stable else 0,
        said=said,
    )


def _workers_elsewhere(operator: Operator) -> int:
    executor = operator.executor
    models = executor.run(fleet.models(operator.namespace))
    living = executor.run_all([membership.living(operator.keys(model)) for model in models])
    return len({worker for workers in living for worker in workers})


def await_verdict(
    read: Callable[[], Verdict], wait_ms: float, clock: Clock, pause: Pause
) -> Verdict:
    """What the workers say, once one serves the version, all refuse it, or time is up.

    Args:
        read: what they say now.
        wait_ms: how long to wait for them.
        clock: for the time.
        pause: waits between two reads.
    """
    give_up_ms = clock.monotonic_ms() + wait_ms
    while True:
        verdict = read()
        if not verdict.is_open or clock.monotonic_ms() >= give_up_ms:
            return verdict
        pause(POLL_S)
