"""How long the programs of a fleet may take to get ready, and what they load meanwhile."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..broker import fleet
from ..broker.blocking import BlockingExecutor
from ..broker.interface import Executor
from ..service.settings import Settings
from ..wire.deployment import Deployment
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys
from ..wire.names import matches
from .survey import FleetStatus, survey

# For a program that loads nothing: its interpreter, its imports, its connections.
START_MS = 180_000.0
_REPORT_MS = 10_000.0

Report = Callable[[str], None]
"""Called with a progress message."""


def silent(_: str) -> None:
    """Ignores progress messages."""


def ready_timeout_ms(deployments: Sequence[Deployment]) -> float:
    """How long programs may take to get ready with these models: each may load for `load_ms`."""
    loads = [record.limits.load_ms for one in deployments for record in one.versions.values()]
    return START_MS + sum(loads)


def deployments_in(executor: Executor, settings: Settings) -> list[Deployment]:
    """The models that a worker of these settings would load; unreadable records are skipped.

    Raises:
        ServerError: the server failed.
    """
    found = []
    for name in executor.run(fleet.models(settings.namespace)):
        if not matches(name, settings.models):
            continue
        with suppress(SettingsError):
            deployment = executor.run(fleet.deployment(ModelKeys(settings.namespace, name)))
            found += [deployment] if deployment is not None else []
    return found


class Progress:
    """Reports every 10 seconds what the workers of a fleet load."""

    def __init__(self, executor: BlockingExecutor, namespace: str, report: Report) -> None:
        self._executor = executor
        self._namespace = namespace
        self._report = report
        self._next_ms = _REPORT_MS

    def after(self, waited_ms: float, waiting: Sequence[str]) -> None:
        """Report if that is due. `waiting`: the programs that are not ready."""
        if waited_ms < self._next_ms:
            return
        self._next_ms = waited_ms + _REPORT_MS
        what = ", ".join(self._loading()) or " and ".join(waiting)
        self._report(f"loading {what}, {waited_ms / 1000:.0f} s")

    def _loading(self) -> list[str]:
        try:
            return loading_in(survey(self._executor, self._namespace))
        except ServerError:  # the programs log it
            return []


def loading_in(status: FleetStatus) -> list[str]:
    """The versions that a worker loads, as `minilm/1`."""
    return [
        f"{model.model}/{version.version}"
        for model in status.models
        for version in model.versions
        if any(worker.state_of(version.version) == "loading" for worker in model.workers)
    ]
