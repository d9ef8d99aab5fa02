"""What a router knows of the fleet: a snapshot that is read again and replaced as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..broker import fleet, membership, requests
from ..broker.errors import UnusableKeyError
from ..broker.interface import Executor
from ..service.steps import Steps
from ..wire.announcements import LOADING, READY, WorkerAnnouncement
from ..wire.deployment import Deployment
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys, models_key

# Refuse new work when memory is this full, so that finishing always has room.
_MEMORY_SHARE_MAX = 0.8
_SERVED = (READY, LOADING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One deployed model: its record, its tenants, and the versions that live workers serve.

    `record` is the deploy hash as stored, `deployment` what it says. `served` includes versions
    that a worker is loading: their requests may wait.
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

    Attributes:
        models: those that are served. What of one cannot be read is as it was read last.
        aside: those whose record is ill-formed, as they were before: they are not served, and
            their open requests have deadlines still.
        faults: models whose record cannot be read, and why.
        foreign: models with a key of the wrong type, and which key; served if known.
        list_fault: the names of the models could not be read, and are those known before.
        memory_full: the server has no room for new work.
    """

    models: Mapping[str, ModelView] = field(default_factory=dict)
    aside: Mapping[str, ModelView] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)
    list_fault: UnusableKeyError | None = None
    memory_full: bool = False

    def last_of(self, model: str) -> ModelView | None:
        """What is known of a model, served or not."""
        return self.models.get(model) or self.aside.get(model)


_NOTHING = FleetView()


def read_view(
    executor: Executor, namespace: str, steps: Steps, before: FleetView = _NOTHING
) -> FleetView:
    """Read the fleet as it is now, each model apart; `before` is what the last look has found.

    Raises:
        ServerError: the server does not answer, or the names of the models cannot be read and none
            are known.
    """
    models: dict[str, ModelView] = {}
    aside: dict[str, ModelView] = {}
    faults: dict[str, str] = {}
    foreign: dict[str, str] = {}
    names, list_fault = _read_names(executor, namespace, before)
    for name in names:
        known = before.last_of(name)
        keys = ModelKeys(namespace, name)
        read = steps.run("read", name, partial(_read_apart, executor, keys, known))
        found = Reading(known) if read is None else read
        if found.model is not None:
            models[name] = found.model
        if found.fault:
            faults[name] = found.fault
            aside |= {} if known is None else {name: known}
        if found.foreign_key:
            foreign[name] = found.foreign_key
    full = steps.run("memory", "", partial(_is_memory_full, executor))
    return FleetView(
        models=models,
        aside=aside,
        faults=faults,
        foreign=foreign,
        list_fault=list_fault,
        memory_full=before.memory_full if full is None else full,
    )


def _is_memory_full(executor: Executor) -> bool:
    info = executor.run(fleet.server_info())
    return info.maxmemory > 0 and info.used_memory > _MEMORY_SHARE_MAX * info.maxmemory


def _read_names(
    executor: Executor, namespace: str, before: FleetView
) -> tuple[list[str], UnusableKeyError | None]:
    try:
        return executor.run(fleet.models(namespace)), None
    except UnusableKeyError as error:
        known = [*before.models, *before.aside]
        fault = UnusableKeyError(error.code, f"{error.code} of {models_key(namespace)}")
        if not known:
            raise fault from error
        return known, fault


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading one model has found.

    Attributes:
        model: None where it is not deployed, or cannot be served.
        foreign_key: a key of it that has the wrong type: its content is as last read.
        fault: why its record cannot be read.
    """

    model: ModelView | None
    foreign_key: str = ""
    fault: str = ""


def _read_apart(executor: Executor, keys: ModelKeys, known: ModelView | None) -> Reading:
    try:
        return read_model(executor, keys, known)
    except SettingsError as error:
        return Reading(None, fault=str(error))


def read_model(executor: Executor, keys: ModelKeys, known: ModelView | None = None) -> Reading:
    """Read one model; the content of a key of the wrong type stays as `known` says.

    An empty set of tenants was lost, since no model is deployed without one.

    Raises:
        SettingsError: its record is ill-formed.
        ServerError: the server does not answer.
    """
    answers = executor.run_each(
        [
            fleet.deploy_hash(keys),
            fleet.tenants(keys),
            membership.living(keys),
            requests.open_requests(keys),
        ]
    )
    foreign = _foreign(answers)
    named = (keys.deploy, keys.tenants, keys.workers, keys.due)
    foreign_key = next((key for key, bad in zip(named, foreign, strict=True) if bad), "")
    if foreign[0] and known is None:
        return Reading(None, fault=f"{keys.deploy} has the wrong type")
    record, tenants, workers, open_requests = (
        fallback if is_foreign else answer
        for answer, fallback, is_foreign in zip(answers, _fallback(known), foreign, strict=True)
    )
    deployment = Deployment.from_hash(keys.model, record)
    if deployment is None:
        return Reading(None)
    tenants = tenants or (known.tenants if known else ())
    served = known.served if known and foreign[2] else _served(executor, keys, workers)
    view = ModelView(
        keys=keys,
        record=record,
        deployment=deployment,
        tenants=tuple(tenants),
        served=served,
        open_requests=open_requests,
    )
    return Reading(view, foreign_key)


def _fallback(known: ModelView | None) -> tuple[Any, ...]:
    """In place of what `read_model` asks for."""
    if known is None:
        return {}, (), (), 0
    return known.record, known.tenants, (), known.open_requests


def _foreign(answers: Sequence[object]) -> list[bool]:
    """Which answers say that a key has the wrong type.

    Raises:
        ServerError: the first answer that is another error.
    """
    for answer in answers:
        if isinstance(answer, ServerError) and not isinstance(answer, UnusableKeyError):
            raise answer
    return [isinstance(answer, UnusableKeyError) for answer in answers]


def _served(executor: Executor, keys: ModelKeys, workers: Sequence[str]) -> frozenset[str]:
    """The versions that live workers serve; one whose announcement cannot be read serves none."""
    announced = executor.run_each([membership.announcement(keys, worker) for worker in workers])
    return frozenset(
        version
        for fields, is_foreign in zip(announced, _foreign(announced), strict=True)
        if not is_foreign
        for version in served_versions(fields)
    )


def served_versions(announcement: Mapping[str, bytes]) -> list[str]:
    """The versions that a worker's announcement says it has loaded, or is loading.

    After a request has ended the device process, all of them are loaded again, one after another.
    What no worker has written says nothing.
    """
    said = WorkerAnnouncement.from_fields(announcement)
    return [version for version in said.versions if said.state_of(version) in _SERVED]


class UnservedWatch:
    """Remembers since when no live worker has served or loaded a version.

    Looks further apart than `contact_ms` restart the watch: a worker may have served in
    between, while the router was frozen or the server away. Owned by the keeper thread.
    """

    def __init__(self, patience_ms: float, contact_ms: float) -> None:
        self._patience_ms = patience_ms
        self._contact_ms = contact_ms
        self._looked_ms = 0.0
        self._since: dict[tuple[str, str], float] = {}

    def observe(self, view: FleetView, now_ms: float) -> frozenset[tuple[str, str]]:
        """The (model, version) pairs that no worker has served for longer than the patience."""
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
