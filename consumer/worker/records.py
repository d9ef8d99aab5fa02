"""The deploy records that a worker serves: what an operator says, also while the server lost it."""

from collections.abc import Mapping
from functools import partial

from ...broker import fleet
from ...broker.fleet import UNDEPLOYED_MARK_MS
from ...broker.interface import Executor
from ...service.events import Events
from ...service.settings import Settings
from ...service.steps import Steps, settled
from ...wire.deployment import Deployment
from ...wire.errors import SettingsError
from ...wire.keys import ModelKeys
from ...wire.names import matches


class DeployRecords:
    """Reads the records of the models whose names match the settings. Owned by the keeper's thread.

    A record that is gone although nobody took its model out of service was lost, and routers put it
    back: until then it counts as it was, so that no model is unloaded for it. It does for half the
    life of the mark of a model taken out of service; after that, the two cases look alike.
    """

    def __init__(self, settings: Settings, events: Events, steps: Steps) -> None:
        self._namespace = settings.namespace
        self._patterns = settings.models
        self._events = events
        self._steps = steps
        self._seen_ms: dict[str, float] = {}  # when each was last there
        self._unreadable: dict[str, str] = {}  # records that were reported
        self.known: Mapping[str, Deployment] = {}  # replaced, never changed

    @property
    def example(self) -> str:
        """A name that a model may have: a worker may have rights to such models alone."""
        return self._patterns.partition(",")[0].strip().replace("*", "x").replace("?", "x")

    def read(self, executor: Executor, now_ms: float) -> Mapping[str, Deployment]:
        """What is in force now, by model.

        Raises:
            ServerError: the server does not answer.
        """
        names = self._names(executor)
        hashes = executor.run_each([fleet.deploy_hash(self._keys(name)) for name in names])
        found: dict[str, Deployment] = {}
        for name, raw in zip(names, hashes, strict=True):
            if self._steps.run("read", name, partial(settled, [raw])) is None:
                # A key of the wrong type says nothing about what an operator wants.
                deployment = self.known.get(name)
            else:
                deployment = self._read_record(name, raw)
            if deployment is not None:
                found[name] = deployment
        self._seen_ms = {name: self._seen_ms.get(name, now_ms) for name in self.known}
        self._seen_ms |= dict.fromkeys(found, now_ms)
        self.known = found | self._lost(executor, found, now_ms)
        return self.known

    def _keys(self, model: str) -> ModelKeys:
        return ModelKeys(self._namespace, model)

    def _names(self, executor: Executor) -> list[str]:
        models = fleet.models(self._namespace)
        listed = self._steps.run("list", "", partial(executor.run, models))
        names = list(self.known) if listed is None else listed
        return [name for name in names if matches(name, self._patterns)]

    def _lost(
        self, executor: Executor, found: Mapping[str, Deployment], now_ms: float
    ) -> dict[str, Deployment]:
        """Records that were there and are gone, of models that nobody took out of service."""
        gone = [name for name in self.known if name not in found and name not in self._unreadable]
        marks = executor.run_each([fleet.is_undeployed(self._keys(name)) for name in gone])
        return {
            name: self.known[name]
            for name, is_marked in zip(gone, marks, strict=True)
            if not is_marked and now_ms - self._seen_ms[name] <= UNDEPLOYED_MARK_MS / 2
        }

    def _read_record(self, model: str, raw: Mapping[str, bytes]) -> Deployment | None:
        """The deploy record of a model; one that cannot be read concerns no other model."""
        try:
            deployment = Deployment.from_hash(model, raw)
        except SettingsError as error:
            if self._unreadable.get(model) != str(error):
                self._events.emit("model.record_unreadable", model=model, reason=str(error))
            self._unreadable[model] = str(error)
            return None
        self._unreadable.pop(model, None)
        return deployment
