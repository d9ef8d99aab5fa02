"""From a version in the store to a model that is loaded and warm."""

import gc
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...models.hooks import check_hooks
from ...models.manifest import Golden
from ...models.model import LoadContext, Model
from ...models.stacking import check_padding
from ...service.clock import Clock
from ...wire.deployment import VersionRecord
from ...wire.errors import StoreError
from ..link.protocol import Load, Ready
from .faults import FaultLog, cleaned, is_failure, message_of
from .golden import check_golden
from .host import pin, read_device, resident_bytes
from .kind_logger import KindLogger
from .loaded_models import LoadedModel
from .warming import warm_up

_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """A version fetched from the store: its class, its files, and what its manifest says."""

    model_class: type[Model]
    folder: Path
    parameters: Mapping[str, Any]
    lineage: str
    golden: tuple[Golden, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningOptions:
    """What the command line of a device process says about versions.

    Attributes:
        allow_code: the setting of that name.
        cache: a folder for copies; None is the default one.
        sources: a folder that a developer edits, see `CodePlace.shown_as`.
        own_store: refuse what others may have written in a local store, data as well.
    """

    allow_code: str = ""
    cache: Path | None = None
    sources: Path | None = None
    own_store: bool = False


Opener = Callable[[Load], VersionFiles]


def load_version(
    load: Load, open_files: Opener, clock: Clock, logger: Any
) -> tuple[LoadedModel, Ready]:
    """Load a version and warm it up; on the device thread.

    Raises:
        BaseException: whatever the model or its libraries raise; `refusal` puts it into words.
    """
    started_ms = clock.monotonic_ms()
    logger = logger.bind(model=load.model, version=load.version)
    choice = read_device(load.device)
    pin(choice.cores)
    record = VersionRecord.from_wire(load.record, {})
    files = open_files(load)
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
    )
    model.load(context)
    check_stacking(model)
    check_golden(loaded, files.golden)
    curve = warm_up(loaded, clock)
    collect_garbage()
    load_ms = clock.monotonic_ms() - started_ms
    return loaded, Ready(load.lane, curve, files.lineage, resident_bytes(), round(load_ms, 3))


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
