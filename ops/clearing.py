"""Withdrawing versions that have been replaced, and keeping some of them for going back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..broker import fleet
from ..wire.deployment import Deployment
from ..wire.errors import BatchfleetError, RequestError
from .deployment import Operator, change, withdraw
from .switching import surplus
from .verdict import POLL_S, Waiting


class StillServedError(BatchfleetError):
    """A version that was to be withdrawn has requests yet; it is still offered."""


class Place(NamedTuple):
    """The model that a command is about, in whose hands, and how it waits."""

    operator: Operator
    model: str
    waiting: Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What became of the versions before: those withdrawn, and entries of those that are not."""

    withdrawn: list[str] = field(default_factory=list)
    left: Mapping[str, int] = field(default_factory=dict)

    def require_cleared(self, model: str) -> None:
        """Check that none has requests any more.

        Raises:
            StillServedError: some have; the text says how many.
        """
        if self.left:
            rest = ", ".join(f"{model}/{name} has {count}" for name, count in self.left.items())
            raise StillServedError(
                f"requests are left for versions that leave: {rest}. They are served, and may be "
                f"withdrawn later: `batchfleet undeploy {model}/VERSION`"
            )


def drain(place: Place, versions: Iterable[str], *, keep: bool, drain_ms: float) -> dict[str, int]:
    """Withdraw versions; how many entries those have that could not be in time.

    Args:
        place: which model, and how to wait.
        versions: which versions; those that take requests by now are passed over.
        keep: whether their records are kept, for going back.
        drain_ms: how long they may take to answer what they have.

    Raises:
        ServerError: the server failed; run it again.
    """
    operator, model, waiting = place
    give_up_ms = waiting.clock.monotonic_ms() + drain_ms
    left = dict.fromkeys(versions, 0)
    while True:
        counts = {version: _withdraw(operator, model, version, keep=keep) for version in left}
        left = {version: count for version, count in counts.items() if count}
        if not left or waiting.clock.monotonic_ms() >= give_up_ms:
            return left
        rest = ", ".join(f"{model}/{name} has {count}" for name, count in left.items())
        waiting.report(f"waiting for requests of versions that leave: {rest}")
        waiting.pause(POLL_S)


def _withdraw(operator: Operator, model: str, version: str, *, keep: bool) -> int:
    try:
        return withdraw(operator, model, version, keep=keep)
    except RequestError:  # somebody has put it in service, or undeployed the model, since
        return 0


def forget_surplus(operator: Operator, model: str, keep: int) -> None:
    """Keep the last so many of the versions that were withdrawn, and forget the others.

    Raises:
        ServerError: the server failed; run it again.
    """
    names: list[str] = []

    def fields(seen: Deployment) -> Mapping[str, bytes]:
        names[:] = surplus(seen, keep)
        return {f"kept:{name}": b"" for name in names}

    change(operator, model, fields)
    if names:
        operator.executor.run(fleet.forget_stats(operator.keys(model), names))
