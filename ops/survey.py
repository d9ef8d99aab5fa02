"""The state of a fleet, read from the server: what is deployed, what waits, who serves it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..broker import fleet, membership, requests, routers
from ..broker.blocking import BlockingExecutor
from ..broker.errors import UnusableKeyError
from ..wire.announcements import READY, WorkerAnnouncement
from ..wire.deployment import Deployment, Stamp, VersionRecord
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys, Queue
from ..wire.stats import VersionStats


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A live worker as it announced itself.

    Attributes:
        name: its name.
        versions: version → what it says of it: `state`, `reason` where it refused, how many rows
            make a full batch (`rows`), which is a `limit` or `measured` (`rows_from`), and what
            runs it (`engine`, `precision`, `gain`, `difference`) where its model has a choice.
        stalled: its stalled loops, as text; empty if there are none.
        facts: everything else that it announced, as text.
    """

    name: str
    versions: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, str]
    stalled: str = ""

    def state_of(self, version: str) -> str:
        """What the worker says of a version; `not loaded` where it says nothing."""
        return str(self.versions.get(version, {}).get("state", "not loaded"))

    def engine_of(self, version: str) -> str:
        """In a few words, which engine runs a version; empty where nothing is said of one."""
        said = self.versions.get(version, {})
        if not said.get("engine"):
            return ""
        return f" ({said['engine']}, {said.get('gain', '?')} × plain)"

    def rows_of(self, version: str) -> str:
        """In a few words, how large its batches may get; empty where nothing is said of it."""
        said = self.versions.get(version, {})
        rows, origin = said.get("rows"), said.get("rows_from", "?")
        return f", batches of {rows} rows at most ({origin})" if rows else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatus:
    """A version that is offered.

    Attributes:
        version: its name.
        stable: whether it is the active one.
        share: percent of the requests that name no version which go to it.
        ready_workers: how many workers serve it.
        entries: a bucket's edge → its entries, waiting and taken.
        answered: how many requests it has answered, errors included.
        errors: how many of them are errors that no caller has caused.
        p50_ms, p99_ms: latency of its answers; None where there are none.
    """

    version: str
    stable: bool
    ready_workers: int
    entries: Mapping[int, int]
    share: float = 0.0
    answered: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A deployed model; `kept` are versions for going back, which are not loaded.

    `fault` says why its deploy record cannot be read; else it is empty.
    """

    model: str
    epoch: int = 0
    intake: str = ""
    tenants: Sequence[str] = ()
    open_requests: int = 0
    versions: Sequence[VersionStatus] = ()
    kept: Sequence[str] = ()
    workers: Sequence[WorkerStatus] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """A fleet at one moment. Memory in bytes; `memory_bytes_max` is 0 where there is no limit.

    `routers` are those alive: name → model → epoch of the deploy record by which it acts.
    """

    namespace: str
    server_version: str
    memory_bytes: int
    memory_bytes_max: int
    models: Sequence[ModelStatus]
    routers: Mapping[str, Mapping[str, int]]

    def to_json(self) -> dict[str, Any]:
        """The map that `status --json` prints."""
        return asdict(self)


def survey(executor: BlockingExecutor, namespace: str) -> FleetStatus:
    """Read the whole fleet; a model whose record cannot be read is listed with its fault.

    Raises:
        ServerError: the server failed.
    """
    info, names = executor.run_all([fleet.server_info(), fleet.models(namespace)])
    routers = read_routers(executor, namespace)
    forget_routers(
        executor, namespace, [name for name, acts_by in routers.items() if acts_by is None]
    )
    return FleetStatus(
        namespace=namespace,
        server_version=info.version,
        memory_bytes=info.used_memory,
        memory_bytes_max=info.maxmemory,
        models=[_survey_model(executor, ModelKeys(namespace, name)) for name in names],
        routers={
            name: {model: stamp.epoch for model, stamp in acts_by.items()}
            for name, acts_by in routers.items()
            if acts_by is not None
        },
    )


def read_routers(
    executor: BlockingExecutor, namespace: str
) -> dict[str, Mapping[str, Stamp] | None]:
    """All routers, and by which record of each model they act; None for one that is silent.

    Raises:
        ServerError: the server failed.
    """
    try:
        names = executor.run(routers.names(namespace))
    except UnusableKeyError:  # until a router restores it
        names = []
    found = executor.run_each([routers.stamps(namespace, name) for name in names])
    # An announcement that somebody else wrote is no sign of a router.
    signs = [None if isinstance(one, UnusableKeyError) else one for one in found]
    for sign in signs:
        if isinstance(sign, ServerError):
            raise sign
    return dict(zip(names, signs, strict=True))


def forget_routers(executor: BlockingExecutor, namespace: str, silent: Collection[str]) -> None:
    """Take names of routers that are silent from the list; one that comes back enters it again.

    Raises:
        ServerError: the server failed.
    """
    if silent:
        executor.run(routers.prune_names(namespace, sorted(silent)))


def _survey_model(executor: BlockingExecutor, keys: ModelKeys) -> ModelStatus:
    deploy_hash, tenants, open_requests, living = executor.run_all(
        [
            fleet.deploy_hash(keys),
            fleet.tenants(keys),
            requests.open_requests(keys),
            membership.living(keys),
        ]
    )
    try:
        deployment = Deployment.from_hash(keys.model, deploy_hash)
    except SettingsError as error:
        return ModelStatus(model=keys.model, open_requests=open_requests, fault=str(error))
    if deployment is None:
        return ModelStatus(model=keys.model, fault="listed, but not deployed")
    announced = executor.run_all([membership.announcement(keys, worker) for worker in living])
    workers = [read_worker(name, fields) for name, fields in zip(living, announced, strict=True)]
    stats = _read_stats(executor, keys)
    versions = deployment.versions.values()
    return ModelStatus(
        model=keys.model,
        epoch=deployment.epoch,
        intake=deployment.intake,
        tenants=tenants,
        open_requests=open_requests,
        versions=[
            _with_stats(
                _survey_version(executor, keys, deployment, record, workers),
                stats.get(record.version, VersionStats()),
            )
            for record in versions
        ],
        kept=list(deployment.kept),
        workers=workers,
    )


def _read_stats(executor: BlockingExecutor, keys: ModelKeys) -> Mapping[str, VersionStats]:
    try:
        return executor.run(fleet.stats(keys))
    except UnusableKeyError:  # until a script counts again
        return {}


def _with_stats(version: VersionStatus, stats: VersionStats) -> VersionStatus:
    return replace(
        version,
        answered=stats.total,
        errors=stats.errors,
        p50_ms=stats.quantile_ms(0.5),
        p99_ms=stats.quantile_ms(0.99),
    )


def read_worker(name: str, announcement: Mapping[str, bytes]) -> WorkerStatus:
    """Read what a worker announced."""
    said = WorkerAnnouncement.from_fields(announcement)
    return WorkerStatus(name=name, versions=said.versions, facts=said.facts, stalled=said.stalled)


def _survey_version(
    executor: BlockingExecutor,
    keys: ModelKeys,
    deployment: Deployment,
    record: VersionRecord,
    workers: Sequence[WorkerStatus],
) -> VersionStatus:
    streams = fleet.queue_streams(keys, record)
    lengths = executor.run_all([requests.stream_length(stream) for stream in streams])
    entries = dict.fromkeys(record.edges, 0)
    for stream, length in zip(streams, lengths, strict=True):
        entries[Queue.parse(stream).edge] += length
    return VersionStatus(
        version=record.version,
        stable=record.version == deployment.stable,
        share=_share(deployment, record.version),
        ready_workers=sum(worker.state_of(record.version) == READY for worker in workers),
        entries=entries,
    )


def _share(deployment: Deployment, version: str) -> float:
    """Percent of the requests that name no version which go to this one."""
    canary = deployment.canary
    of_canary = 0.0 if canary is None else canary.weight
    if canary is not None and canary.version == version:
        return of_canary
    return 100 - of_canary if version == deployment.stable else 0.0
