"""From a version in the store to a model that is loaded and warm."""

import gc
from copy import deepcopy
from typing import Any

from ...models.engines import answers_digest
from ...models.hooks import check_hooks
from ...models.model import LoadContext, Model
from ...models.stacking import check_padding
from ...service.clock import Clock
from ...wire.deployment import VersionRecord
from ...wire.errors import StoreError
from ..link.protocol import EngineInUse, Load, Ready
from .device_memory import held_bytes, require_room
from .faults import FaultLog, cleaned, is_failure, message_of
from .host import pin, read_device
from .kind_logger import KindLogger
from .load_pace import LoadPace
from .loaded_models import LoadedModel
from .opened import Opener, VersionFiles
from .readiness import Readiness, get_ready

_SEED = 0


def load_version(
    load: Load, open_files: Opener, pace: LoadPace, clock: Clock, logger: Any
) -> tuple[LoadedModel, Ready]:
    """Load a version and warm it up; on the device thread.

    Raises:
        BaseException: any error of the model or its libraries; `refusal` describes it.
    """
    started_ms, before_bytes = clock.monotonic_ms(), held_bytes(load.device)
    loaded, files = open_model(load, open_files, pace, clock, logger)
    found = get_ready(loaded, files, load.threads, clock)
    collect_garbage()
    load_ms = round(clock.monotonic_ms() - started_ms, 3)
    grown_bytes = max(0, held_bytes(load.device) - before_bytes)
    return loaded, _ready(loaded, found, files.lineage, load_ms)._replace(memory_bytes=grown_bytes)


def open_model(
    load: Load, open_files: Opener, pace: LoadPace, clock: Clock, logger: Any
) -> tuple[LoadedModel, VersionFiles]:
    """Load a version's model, with its plain engine in use; it has run nothing.

    Raises:
        BaseException: any error of the model or its libraries; `refusal` describes it.
    """
    logger = logger.bind(model=load.model, version=load.version)
    choice = read_device(load.device)
    pin(choice.cores)
    record = VersionRecord.from_wire(load.record, {})
    files = open_files(load, pace)
    if record.lineage and record.lineage != files.lineage:
        raise StoreError(
            f"{load.model}/{load.version} in the store is not what was deployed "
            f"(lineage {files.lineage}, deployed {record.lineage}); deploy it again"
        )
    model = files.model_class()
    check_hooks(model)
    context = LoadContext(
        model=load.model,
        version=load.version,
        device=choice.device,
        threads=load.threads,
        seed=_SEED,
        parameters=deepcopy(dict(files.parameters)),
        signature=record.signature,
        limits=record.limits,
        folder=files.folder,
        logger=logger,
    )
    loaded = LoadedModel(
        number=load.lane,
        model=model,
        record=record,
        device=choice.device,
        logger=KindLogger(logger, clock),
        fault_log=FaultLog(logger, clock),
        pace=pace,
    )
    require_room(load, max(load.memory_bytes, files.size_bytes))
    model.load(context)
    check_stacking(model)
    return loaded, files


def _ready(loaded: LoadedModel, found: Readiness, lineage: str, load_ms: float) -> Ready:
    curve, verdict = list(found.curve), found.verdict
    if verdict is None:
        return Ready(loaded.number, curve, lineage, 0, load_ms, [])
    engine, likeness = verdict.engine, verdict.likeness
    in_use = EngineInUse(
        engine.name, engine.precision, verdict.gain, likeness.difference, likeness.cosine
    )
    digest = answers_digest(lineage, loaded.record.precision, engine)
    return Ready(loaded.number, curve, digest, 0, load_ms, [in_use])


def check_stacking(model: Model) -> None:
    """Hold what a model says about padding against what can be done; `load` may have set it.

    Raises:
        StoreError: it asks for an unknown side, or for a value that is no number.
    """
    if not model.stack:
        return
    try:
        check_padding(model.pad_side, model.pad_value)
    except ValueError as error:
        raise StoreError(str(error)) from error


def refusal(load: Load, error: BaseException) -> str:
    """Why a version could not be loaded, for its operator."""
    if is_failure(error):
        return f"{load.model}/{load.version}: its warm-up failed: {cleaned(error).message}"
    return f"{load.model}/{load.version}: {message_of(error)}"


def collect_garbage() -> None:
    """Free what loading left behind, and spare the collector the objects that stay.

    A full collection walks every object that torch and the model brought along, in the middle of
    a batch.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
