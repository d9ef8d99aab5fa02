"""How long the programs of a fleet may take to get ready, and what they are at meanwhile."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from ..broker import fleet
from ..broker.blocking import BlockingExecutor
from ..broker.interface import Executor
from ..service.settings import Settings
from ..wire.deployment import Deployment
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys
from .survey import FleetStatus, survey

# For a program that loads nothing: its interpreter, its imports, its connections.
START_MS = 180_000.0
_TELL_MS = 10_000.0

Tell = Callable[[str], None]
"""Called with a progress message."""


def silent(_: str) -> None:
    """What nobody wants to be told."""


def patience_ms(deployments: Sequence[Deployment]) -> float:
    """How long programs may take to get ready with these models: each may load for `load_ms`."""
    loads = [record.limits.load_ms for one in deployments for record in one.versions.values()]
    return START_MS + sum(loads)


def deployments_in(executor: Executor, settings: Settings) -> list[Deployment]:
    """The models that a worker of these settings would load; records that are none are left out.

    Raises:
        ServerError: the server failed.
    """
    wanted = [pattern.strip() for pattern in settings.models.split(",")]
    found = []
    for name in executor.run(fleet.models(settings.namespace)):
        if not any(fnmatchcase(name, pattern) for pattern in wanted):
            continue
        with suppress(SettingsError):
            deployment = executor.run(fleet.deployment(ModelKeys(settings.namespace, name)))
            found += [deployment] if deployment is not None else []
    return found


class Progress:
    """Tells every 10 seconds what the workers of a fleet load; owned by who waits for them."""

    def __init__(self, executor: BlockingExecutor, namespace: str, tell: Tell) -> None:
        self._executor = executor
        self._namespace = namespace
        self._tell = tell
        self._next_ms = _TELL_MS

    def after(self, waited_ms: float, waiting: Sequence[str]) -> None:
        """Say something if it is time to. `waiting`: the programs that are not ready."""
        if waited_ms < self._next_ms:
            return
        self._next_ms = waited_ms + _TELL_MS
        what = ", ".join(self._loading()) or " and ".join(waiting)
        self._tell(f"loading {what}, {waited_ms / 1000:.0f} s")

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
