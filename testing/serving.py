"""`serve`: one model, one router, one worker and a client, all in this process."""

import gc
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..broker import fleet, membership
from ..consumer.device.opened import VersionFiles
from ..consumer.program import ConsumerProgram
from ..consumer.worker.context import Devices
from ..models.manifest import read_signature
from ..models.model import Model
from ..producer.client import Client
from ..router.program import RouterProgram
from ..service.clock import Clock, SystemClock
from ..service.events import Events
from ..service.lifecycle import StopSignal, guarded_thread
from ..service.logs import configure_logs_if_unset
from ..service.settings import Settings
from ..wire.announcements import READY, REFUSED, WorkerAnnouncement
from ..wire.codec import plain_json
from ..wire.deployment import VersionRecord, limits_from_wire
from ..wire.errors import BatchfleetError, SettingsError
from ..wire.keys import DEFAULT_NAMESPACE, DEFAULT_TENANT, ModelKeys
from ..wire.names import require_name
from ..wire.reading import ratio
from ..wire.signature import Signature
from .device_thread import DeviceThread
from .twin.executors import MemoryBroker
from .twin.server import MemoryServer

VERSION = "1"
# How long a model may sit at a breakpoint before its caller is told that it took too long.
_PATIENCE_MS = 600_000
_PATIENT = ("timeout_ms", "load_ms")
_STAGES = ("preprocess_ms", "predict_ms", "postprocess_ms")
_REFRESH_MS = 100
_GRACE_MS = 2_000
_LOOK_S = 0.01
_JOIN_S = 30.0
_LINEAGE = "0" * 16

RunProgram = Callable[[StopSignal, Callable[[dict[str, object]], None]], int]


class ModelRefusedError(BatchfleetError):
    """The model could not be loaded or warmed up; the traceback is in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model class and what a manifest would say about it."""

    model_class: type[Model]
    name: str
    record: VersionRecord
    parameters: Mapping[str, Any]
    folder: Path

    def files(self, *_: object) -> VersionFiles:
        """What a store would hand to a device process."""
        return VersionFiles(
            model_class=self.model_class,
            folder=self.folder,
            parameters=self.parameters,
            lineage=_LINEAGE,
        )


@contextmanager
def serve(
    model_class: type[Model],
    *,
    name: str | None = None,
    signature: Signature | Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    **limits: Any,
) -> Iterator[Client]:
    """Serve a class in this process; yields a client of a fleet with one worker.

    The model runs in threads of this process, so breakpoints work. Exceptions of the model are
    logged with their traceback, on stderr unless the program has configured structlog. The caller
    gets code and message, as from any fleet.

    Args:
        model_class: the class; its `signature`, `limits` and `bytes_per_token` are used.
        name: name of the model for clients; None = the name of the class.
        signature: overrides that of the class; inputs are checked against it.
        parameters: `LoadContext.parameters`.
        folder: `LoadContext.folder`, the model's files; None = an empty folder.
        limits: limits of the version, such as `max_batch_size=4`. Time limits default to ten
            minutes each, so there is time to look around at a breakpoint. If some of
            `preprocess_ms`, `predict_ms` and `postprocess_ms` are set (here or in the class), the
            others default to the largest one set. A row that finds the device idle is preprocessed
            and predicted in one step, with the sum of both limits.

    Raises:
        ModelRefusedError: the model could not be loaded.
        SettingsError: unknown limit, or a value out of its range; or an invalid signature or
            parameters.
        CallerError: `bad_request`: `name` is not a valid name.
        TypeError: `model_class` is not a class derived from `Model`.
    """
    configure_logs_if_unset()
    _require_model(model_class)
    with tempfile.TemporaryDirectory(prefix="batchfleet-") as empty:
        served = Served(
            model_class=model_class,
            name=require_name("model", model_class.__name__ if name is None else name),
            record=_record(model_class, signature, limits),
            parameters=_parameters(parameters or {}),
            folder=Path(empty) if folder is None else folder.absolute(),
        )
        small_fleet = _SmallFleet(served, SystemClock())
        try:
            small_fleet.start()
            with small_fleet.client() as client:
                yield client
        finally:
            small_fleet.stop()


def _require_model(given: Any) -> None:
    if not isinstance(given, type) or not issubclass(given, Model):
        raise TypeError(f"serve takes a class derived from batchfleet.Model, not {given!r}")


def _record(
    model_class: type[Model],
    signature: Signature | Mapping[str, Any] | None,
    limits: Mapping[str, Any],
) -> VersionRecord:
    given = {**_said(model_class, "limits"), **limits}
    declared = _said(model_class, "signature") if signature is None else signature
    return VersionRecord(
        version=VERSION,
        lineage=_LINEAGE,
        bytes_per_token=ratio(getattr(model_class, "bytes_per_token", 0.0)),
        signature=_signature(declared),
        limits=limits_from_wire({**_patience(given), **given}),
    )


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """As they would come out of a manifest."""
    try:
        plain: Mapping[str, Any] = plain_json("parameters", given)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return plain


def _signature(declared: Signature | Mapping[str, Any]) -> Signature:
    wire = declared.to_wire() if isinstance(declared, Signature) else dict(declared)
    try:
        return read_signature(wire)
    except ValueError as error:
        raise SettingsError(f"signature: {error}") from error


def _patience(given: Mapping[str, Any]) -> dict[str, Any]:
    """The time limits of a test that gives these."""
    stages = [given[name] for name in _STAGES if name in given]
    stage_ms = max(stages) if stages else _PATIENCE_MS
    return {**dict.fromkeys(_PATIENT, _PATIENCE_MS), **dict.fromkeys(_STAGES, stage_ms)}


def _said(model_class: type[Model], name: str) -> Mapping[str, Any]:
    said: Mapping[str, Any] = getattr(model_class, name, {})
    return said


@dataclass(slots=True)
class _ProgramThread:
    """One program of the fleet on a thread of its own."""

    run: RunProgram
    on_failure: Callable[[BaseException], None]
    stop: StopSignal = field(default_factory=StopSignal)
    thread: threading.Thread | None = None

    def start(self, name: str) -> None:
        self.thread = guarded_thread(name, self._run, self.on_failure)
        self.thread.start()

    def _run(self) -> None:
        self.run(self.stop, lambda _: None)

    def end(self, server: MemoryServer) -> None:
        """Stop it and wait; what waits in the server is woken, so that nothing takes its time."""
        self.stop.set()
        server.end_waits()
        if self.thread is not None:
            self.thread.join(_JOIN_S)


class _SmallFleet:
    """Owns the twin of a server, a router and a worker."""

    def __init__(self, served: Served, clock: Clock) -> None:
        self._served = served
        self._clock = clock
        self._server = MemoryServer(clock)
        self._broker = MemoryBroker(self._server)
        self._keys = ModelKeys(DEFAULT_NAMESPACE, served.name)
        self._failure: BaseException | None = None
        self._over = threading.Event()
        settings = Settings(refresh_ms=_REFRESH_MS, grace_ms=_GRACE_MS)
        events = Events()
        worker = ConsumerProgram(
            settings,
            events,
            clock,
            broker=self._broker,
            devices=Devices(open_link=lambda _: DeviceThread(served.files, clock)),
        )
        router = RouterProgram(settings, events, clock, self._broker)
        self._worker = _ProgramThread(worker.run, self._fail)
        self._router = _ProgramThread(router.run, self._fail)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._over.set()

    def start(self) -> None:
        """Deploy the model and wait until it is loaded.

        Raises:
            ModelRefusedError: it could not be.
        """
        record, keys = self._served.record, self._keys
        with self._broker.connect("testing") as executor:
            streams = fleet.queue_streams(keys, record)
            executor.run(fleet.deploy(keys, record, streams, "testing", [DEFAULT_TENANT]))
            executor.run(fleet.enlist_model(keys.namespace, keys.model))
        self._worker.start("worker")
        self._router.start("router")
        give_up_ms = self._clock.monotonic_ms() + record.limits.load_ms + _GRACE_MS
        while (said := self._announced()).state_of(VERSION) != READY:
            if self._failure is not None:
                raise self._failure
            if said.state_of(VERSION) == REFUSED:
                raise ModelRefusedError(f"{said.reason_of(VERSION)}; its traceback is in the log")
            if self._clock.monotonic_ms() > give_up_ms:
                raise ModelRefusedError(f"{keys.model} was not loaded in time")
            self._over.wait(_LOOK_S)

    def _announced(self) -> WorkerAnnouncement:
        """What the worker says of the model."""
        with self._broker.connect("testing") as executor:
            for worker in executor.run(membership.living(self._keys)):
                fields = executor.run(membership.announcement(self._keys, worker))
                return WorkerAnnouncement.from_fields(fields)
        return WorkerAnnouncement.from_fields({})

    def client(self) -> Client:
        """A client of this fleet, with the patience of the model's own time limit."""
        return Client(
            namespace=self._keys.namespace,
            tenant=DEFAULT_TENANT,
            broker=self._broker,
            defaults={"timeout_ms": self._served.record.limits.timeout_ms},
        )

    def stop(self) -> None:
        """End everything, the worker first, which answers what it holds.

        Raises:
            Exception: the error that ended a program.
        """
        self._worker.end(self._server)
        self._router.end(self._server)
        gc.unfreeze()  # loading froze what was there, which a worker does once and for good
        if self._failure is not None:
            raise self._failure
