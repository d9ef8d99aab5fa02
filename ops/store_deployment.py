"""Deploying out of the store, and the copy of each deploy record that lies there."""

import secrets
from collections.abc import Sequence
from fnmatch import fnmatchcase

import fsspec.core

from ..broker import fleet
from ..models.store import Store
from ..wire.errors import StoreError
from .deployment import Deployed, Operator, copy_of_record, deploy

COPY_NAME = "deploy.json"


def deploy_version(
    operator: Operator, store: Store, model: str, version: str | None, tenants: Sequence[str]
) -> Deployed:
    """Put a version in service, the newest one for None, and keep a copy of the record.

    Raises:
        CallerError: `bad_request` where model, version or a tenant is not a name.
        StoreError: there is no such version, or the copy could not be written; deploy it again.
        ServerError: the server failed; deploy it again.
    """
    manifest = store.manifest(model, version or store.newest(model))
    done = deploy(operator, model, manifest.record(), tenants)
    keep_copy(operator, store, model)
    return done


def deploy_missing(
    operator: Operator, store: Store, patterns: str, tenants: Sequence[str]
) -> list[Deployed]:
    """Deploy the newest version of each model that fits `patterns` and is not deployed yet.

    Args:
        operator: of the fleet.
        store: where the models are.
        patterns: as in the setting `models`, `a,ocr-*`.
        tenants: for whom.
    """
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    return [
        deploy_version(operator, store, model, versions[-1], tenants)
        for model, versions in store.models().items()
        if any(fnmatchcase(model, pattern) for pattern in wanted)
        and not operator.deploy_hash(model)
    ]


def keep_copy(operator: Operator, store: Store, model: str) -> bool:
    """Write the deploy record beside the model's versions; False where the store has none of them.

    Raises:
        StoreError: the storage refused.
    """
    if model not in store.models():
        return False
    tenants = operator.executor.run(fleet.tenants(operator.keys(model)))
    raw = copy_of_record(operator.deploy_hash(model), operator.namespace, tenants)
    files, path = _copy_place(store, model)
    # Under another name first: a reader must never see half a record.
    scratch = f"{path}.{secrets.token_hex(4)}"
    try:
        files.pipe_file(scratch, raw)
        files.mv(scratch, path)
    except OSError as error:
        raise StoreError(
            f"the deploy record of {model} is in force, but no copy could be written: {error}"
        ) from error
    return True


def remove_copy(store: Store, model: str) -> None:
    """Remove the copy of a deploy record, if there is one.

    Raises:
        StoreError: the storage refused.
    """
    files, path = _copy_place(store, model)
    try:
        if files.exists(path):
            files.rm_file(path)
    except OSError as error:
        raise StoreError(f"{model} is out of service, but {path} remains: {error}") from error


def _copy_place(store: Store, model: str) -> tuple[fsspec.AbstractFileSystem, str]:
    files, root = fsspec.core.url_to_fs(store.root)
    return files, f"{root.rstrip('/')}/{model}/{COPY_NAME}"
