"""Withdrawing versions that have been replaced, and keeping some of them for going back."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ..broker import fleet
from ..broker.errors import UnusableKeyError
from ..wire.deployment import Deployment
from ..wire.errors import BatchfleetError, ErrorKind, RequestError
from .deployment import (
    Operator,
    change,
    plain_text,
    require_deployment,
    takes_requests,
    withdraw,
)
from .switching import running_roll, surplus
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


def withdraw_version(place: Place, version: str, *, drain_ms: float, forced: bool = False) -> int:
    """Take one version out of service, and forget it; returns how many requests were dropped.

    Args:
        place: which model, and how to wait.
        version: one that is offered or kept, and takes no request that does not name it.
        drain_ms: how long it may take to answer what it has.
        forced: drop what it has instead. Workers finish what they hold; callers of all else time
            out.

    Raises:
        CallerError: `unknown_model`, `unknown_version`; or `bad_request` where it takes requests.
        StillServedError: it has requests yet, and still serves them.
        ServerError: the server failed; run it again.
    """
    operator, model, _ = place
    seen = require_deployment(model, operator.deploy_hash(model))
    if version not in {*seen.versions, *seen.kept}:
        raise RequestError.of(
            ErrorKind.UNKNOWN_VERSION, f"{model}/{plain_text(version)} is not in service"
        )
    if seen.is_default(version):
        raise takes_requests(model, version)
    dropped = _drop_waiting(operator, seen, version) if forced else 0
    left = drain(place, [version], keep=False, drain_ms=drain_ms)
    Cleared(left=left).require_cleared(model)
    names = (f"kept:{version}", f"workers:{seen.stable}")
    # Without the other version, there is no worker that has to leave it alone.
    change(operator, model, lambda now: {name: b"" for name in names if _has(now, name)})
    forget_stats(operator, model, [version])
    return dropped


def _has(seen: Deployment, field: str) -> bool:
    kind, _, version = field.partition(":")
    is_alone = len(seen.versions) == 1 and not running_roll(seen.roll)
    return version in seen.kept if kind == "kept" else version in seen.workers and is_alone


def _drop_waiting(operator: Operator, seen: Deployment, version: str) -> int:
    """Remove all entries of a version that is offered; how many there were."""
    if version not in seen.versions:
        return 0
    streams = fleet.queue_streams(operator.keys(seen.model), seen.versions[version])
    return sum(operator.executor.run_all([fleet.drop_entries(stream) for stream in streams]))


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
        forget_stats(operator, model, names)


def forget_stats(operator: Operator, model: str, versions: Sequence[str]) -> None:
    """Remove the counts of versions that are gone.

    Raises:
        ServerError: refused or unreachable; they go with the model at the latest.
    """
    with suppress(UnusableKeyError):  # a foreign key in their place gives way when one counts
        operator.executor.run(fleet.forget_stats(operator.keys(model), versions))
