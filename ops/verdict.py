"""What the live workers say of a version that has just been deployed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..broker import fleet, membership
from ..service.clock import Clock
from ..wire.announcements import READY, REFUSED, WorkerAnnouncement
from ..wire.errors import BatchfleetError
from .deployment import Operator

POLL_S = 0.1

Pause = Callable[[float], object]
"""Waits for so many seconds."""


class AllRefuseError(BatchfleetError):
    """Every live worker refuses a version; it stays deployed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which live workers of a fleet serve or refuse one version.

    Attributes:
        workers: how many of them have read the model's record.
        elsewhere: how many have not, so far.
        ready: how many serve it.
        refused: worker → why it refuses.
    """

    workers: int = 0
    elsewhere: int = 0
    ready: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether no worker serves it, and not all have refused it yet."""
        return not self.ready and (len(self.refused) < self.workers or self.is_unseen)

    @property
    def is_unseen(self) -> bool:
        """Whether there are workers, and none of them has read the model's record yet."""
        return not self.workers and bool(self.elsewhere)

    def since(self, before: "Verdict") -> "Verdict":
        """This one without earlier refusals, after which the version is tried again."""
        new = {name: why for name, why in self.refused.items() if before.refused.get(name) != why}
        return replace(self, refused=new)

    def raise_if_all_refuse(self, model: str, version: str) -> None:
        """Check that some worker may still serve the version.

        Raises:
            AllRefuseError: all refuse; the text holds their reasons.
        """
        if not self.refused or self.ready or self.is_open:
            return
        reasons = "; ".join(sorted(set(self.refused.values())))
        raise AllRefuseError(
            f"{model}/{version} is deployed, but all {self.workers} workers refuse it: {reasons}. "
            f"Requests for it are answered no_worker. To roll back, deploy the previous version: "
            f"`batchfleet deploy {model}/VERSION`"
        )


def read_verdict(operator: Operator, model: str, version: str) -> Verdict:
    """What the workers have announced so far.

    Raises:
        ServerError: the server failed.
    """
    executor, keys = operator.executor, operator.keys(model)
    living = executor.run(membership.living(keys))
    models = executor.run(fleet.models(operator.namespace))
    others = executor.run_all([membership.living(operator.keys(other)) for other in models])
    announced = executor.run_all([membership.announcement(keys, worker) for worker in living])
    said = dict(zip(living, map(WorkerAnnouncement.from_fields, announced), strict=True))
    return Verdict(
        workers=len(living),
        elsewhere=len({worker for workers in others for worker in workers} - set(living)),
        ready=sum(one.state_of(version) == READY for one in said.values()),
        refused={
            worker: one.reason_of(version)
            for worker, one in said.items()
            if one.state_of(version) == REFUSED
        },
    )


def await_verdict(
    read: Callable[[], Verdict], before: Verdict, wait_ms: float, clock: Clock, pause: Pause
) -> Verdict:
    """What the workers say, once one serves the version, all refuse it, or time is up.

    Args:
        read: what they say now.
        before: what they said before it was deployed.
        wait_ms: how long to wait for them.
        clock: for the time.
        pause: waits between two reads.
    """
    give_up_ms = clock.monotonic_ms() + wait_ms
    while True:
        verdict = read()
        if not verdict.since(before).is_open or clock.monotonic_ms() >= give_up_ms:
            return verdict
        pause(POLL_S)
