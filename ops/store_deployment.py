"""Deploying out of the store, and the copy of each deploy record that lies there."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ..broker import fleet
from ..models.listing import LeftOut
from ..models.manifest import Manifest
from ..models.store import Store, storage
from ..wire.deployment import VersionRecord
from ..wire.errors import StoreError, VersionRefusedError
from ..wire.names import matches, require_name
from .deployment import Deployed, Operator, deploy
from .record_copy import RecordCopy, copy_of_record, read_copy

COPY_NAME = "deploy.json"
COPY_BYTES_MAX = 64 * 1024 * 1024


def deploy_version(
    operator: Operator, store: Store, model: str, record: VersionRecord, tenants: Sequence[str]
) -> Deployed:
    """Put a version of the store in service, and keep a copy of the record.

    Raises:
        CallerError: `bad_request` where a tenant is not a name.
        StoreError: the copy could not be written; the version is in service.
        ServerError: the server failed; deploy it again.
    """
    done = deploy(operator, model, record, tenants)
    keep_copy(operator, store, model)
    return done


def deploy_missing(
    operator: Operator,
    store: Store,
    patterns: str,
    tenants: Sequence[str],
    settle: Callable[[Manifest], VersionRecord],
) -> list[LeftOut]:
    """Deploy the newest version of each model that fits `patterns` and is not deployed yet.

    Returns what of the store could not be used, or done: one bad version keeps no other from it.

    Args:
        operator: of the fleet.
        store: where the models are.
        patterns: as in the setting `models`, `a,ocr-*`.
        tenants: for whom.
        settle: makes the record of a version that is deployed for the first time.
    """
    survey = store.survey()
    left_out = list(survey.left_out)
    for model, versions in survey.models.items():
        if not matches(model, patterns) or operator.deploy_hash(model):
            continue
        try:
            record = settle(store.manifest(model, versions[-1]))
            deploy_version(operator, store, model, record, tenants)
        except VersionRefusedError as error:
            left_out.append(LeftOut(f"{model}/{versions[-1]}", str(error)))
        except StoreError as error:
            left_out.append(LeftOut(f"{model}/{COPY_NAME}", str(error)))
    return left_out


def keep_copy(operator: Operator, store: Store, model: str) -> bool:
    """Write the deploy record beside the model's versions; False where the store has none of them.

    Raises:
        StoreError: the storage refused.
    """
    if not store.versions(model):
        return False
    tenants = operator.executor.run(fleet.tenants(operator.keys(model)))
    raw = copy_of_record(operator.deploy_hash(model), operator.namespace, tenants)
    files, path = _copy_place(store, model)
    # Under another name first: a reader must never see half a record.
    scratch = f"{path}.{secrets.token_hex(4)}"
    try:
        with storage(f"{model} is deployed, but no copy of its deploy record could be written"):
            files.pipe_file(scratch, raw)
            if isinstance(files, LocalFileSystem):
                Path(scratch).replace(path)  # `mv` would move into a folder that lies there
            else:
                files.mv(scratch, path)
    except StoreError:
        with suppress(StoreError), storage(f"cannot remove {scratch}"):
            files.rm_file(scratch)
        raise
    return True


def copy_in(store: Store, model: str) -> RecordCopy | None:
    """The copy of a deploy record; None where the store has none of this model.

    Raises:
        SettingsError: it is no copy of a deploy record.
        StoreError: the storage refused.
    """
    files, path = _copy_place(store, require_name("model", model))
    with storage(f"cannot read {path}"):
        try:
            with files.open(path, "rb") as file:
                raw = file.read(COPY_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
    if len(raw) > COPY_BYTES_MAX:
        raise StoreError(f"{path} is larger than {COPY_BYTES_MAX} bytes")
    return read_copy(model, raw)


def remove_copy(store: Store, model: str) -> None:
    """Remove the copy of a deploy record, if there is one.

    Raises:
        StoreError: the storage refused.
    """
    files, path = _copy_place(store, model)
    with storage(f"{model} is out of service, but {path} may remain"):
        if files.exists(path):
            files.rm_file(path)


def _copy_place(store: Store, model: str) -> tuple[fsspec.AbstractFileSystem, str]:
    files, root = store.place
    return files, f"{root}/{model}/{COPY_NAME}"
