"""What a router knows of the fleet: a snapshot that is read anew and replaced as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from ..broker import fleet, requests
from ..broker.errors import UnusableKeyError
from ..broker.interface import Executor
from ..wire.deployment import Deployment
from ..wire.errors import SettingsError
from ..wire.keys import ModelKeys

# Refuse new work when memory is this full, so that finishing always has room.
_MEMORY_SHARE_MAX = 0.8
_SERVED = ("ready", "loading")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One deployed model: its record, its tenants, and the versions that live workers serve.

    `record` is the deploy hash as it lies on the server, `deployment` what it says. `served` counts
    a version that a worker is loading: its requests are worth the wait.
    """

    keys: ModelKeys
    record: Mapping[str, bytes]
    deployment: Deployment
    tenants: tuple[str, ...]
    served: frozenset[str]
    open_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """All deployed models at one moment, and whether the server has room for new work.

    `faults` names the models whose record cannot be read, and why; they are left out.
    """

    models: Mapping[str, ModelView] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    memory_full: bool = False


def read_view(executor: Executor, namespace: str) -> FleetView:
    """Read the fleet as it is now.

    Raises:
        ServerError: the server does not answer.
    """
    models: dict[str, ModelView] = {}
    faults: dict[str, str] = {}
    for name in executor.run(fleet.models(namespace)):
        try:
            view = _read_model(executor, ModelKeys(namespace, name))
        except (SettingsError, UnusableKeyError) as error:
            faults[name] = str(error)
        else:
            models |= {} if view is None else {name: view}
    info = executor.run(fleet.server_info())
    full = info.maxmemory > 0 and info.used_memory > _MEMORY_SHARE_MAX * info.maxmemory
    return FleetView(models=models, faults=faults, memory_full=full)


def reread(executor: Executor, view: FleetView, keys: ModelKeys) -> FleetView:
    """`view` with what there is now of one model.

    Raises:
        ServerError: the server does not answer.
    """
    models = {name: model for name, model in view.models.items() if name != keys.model}
    faults = {name: fault for name, fault in view.faults.items() if name != keys.model}
    try:
        model = _read_model(executor, keys)
    except (SettingsError, UnusableKeyError) as error:
        faults[keys.model] = str(error)
    else:
        models |= {} if model is None else {keys.model: model}
    return replace(view, models=models, faults=faults)


def _read_model(executor: Executor, keys: ModelKeys) -> ModelView | None:
    record, tenants, workers, open_requests = executor.run_all(
        [
            fleet.deploy_hash(keys),
            fleet.tenants(keys),
            fleet.living(keys),
            requests.open_requests(keys),
        ]
    )
    deployment = Deployment.from_hash(keys.model, record)
    if deployment is None:
        return None
    announced = executor.run_all([fleet.announcement(keys, worker) for worker in workers])
    served = {version for fields in announced for version in served_versions(fields)}
    return ModelView(
        keys=keys,
        record=record,
        deployment=deployment,
        tenants=tuple(tenants),
        served=frozenset(served),
        open_requests=open_requests,
    )


def served_versions(announcement: Mapping[str, bytes]) -> list[str]:
    """The versions that a worker's announcement says it has loaded, or is loading.

    After a request has ended the device process, all of them are loaded anew, one after the other.
    """
    lanes = orjson.loads(announcement.get("lanes", b"{}"))
    return [version for version, lane in lanes.items() if lane.get("state") in _SERVED]


class UnservedWatch:
    """Remembers since when no live worker has had a version, or been loading it.

    Looks further apart than `contact_ms` begin the watch anew: a worker may have served in
    between, while the router was frozen or the server away. Owned by the keeper thread.
    """

    def __init__(self, patience_ms: float, contact_ms: float) -> None:
        self._patience_ms = patience_ms
        self._contact_ms = contact_ms
        self._looked_ms = 0.0
        self._since: dict[tuple[str, str], float] = {}

    def observe(self, view: FleetView, now_ms: float) -> frozenset[tuple[str, str]]:
        """The (model, version) pairs that nobody has served for longer than the patience."""
        unserved = {
            (name, version)
            for name, model in view.models.items()
            for version in model.deployment.versions
            if version not in model.served
        }
        if now_ms - self._looked_ms > self._contact_ms:
            self._since = {}
        self._looked_ms = now_ms
        self._since = {pair: self._since.get(pair, now_ms) for pair in unserved}
        late = now_ms - self._patience_ms
        return frozenset(pair for pair, since in self._since.items() if since <= late)
