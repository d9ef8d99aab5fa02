"""Removing a version from the store, unless some fleet has it in service."""

from ..models.removing import remove_version
from ..models.store import Store
from ..wire.deployment import Deployment
from ..wire.errors import BatchfleetError
from .clearing import forget_stats
from .deployment import Operator, change
from .store_deployment import copy_in, keep_copy


class DeployedError(BatchfleetError):
    """A version is in service."""


def remove(operator: Operator | None, store: Store, model: str, version: str) -> None:
    """Remove a version that no fleet has in service, and forget that it was kept for going back.

    Args:
        operator: of a fleet that uses the store; None = the copy of the deploy record has to say
            what is in service.
        store: from which.
        model: which model.
        version: which version.

    Raises:
        DeployedError: it is in service.
        SettingsError: the deploy record or its copy cannot be read.
        StoreError: there is no such version, or the storage refused.
        ServerError: the server failed.
    """
    copy = copy_in(store, model)
    if copy is not None and (operator is None or copy.namespace != operator.namespace):
        _require_unused(Deployment.from_hash(model, copy.deploy_hash), version, copy.namespace)
    if operator is not None:
        seen = Deployment.from_hash(model, operator.deploy_hash(model))
        _require_unused(seen, version, operator.namespace)
        if seen is not None and version in seen.kept:
            forget_kept(operator, model, version)
            keep_copy(operator, store, model)
    remove_version(store, model, version)


def _require_unused(seen: Deployment | None, version: str, namespace: str) -> None:
    if seen is not None and version in seen.versions:
        raise DeployedError(
            f"{seen.model}/{version} is in service in the fleet {namespace}; "
            f"`batchfleet undeploy {seen.model}/{version}` withdraws it"
        )


def forget_kept(operator: Operator, model: str, version: str) -> None:
    """Forget that a version is kept for going back.

    Raises:
        ServerError: refused or unreachable; run it again.
    """
    field = f"kept:{version}"
    change(operator, model, lambda seen: {field: b""} if version in seen.kept else {})
    forget_stats(operator, model, [version])
