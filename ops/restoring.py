"""Bringing back what a server has lost of its deployed models, out of the copies in the store."""

from collections.abc import Iterable

from ..broker import fleet
from ..models.listing import LeftOut
from ..models.store import Store
from ..wire.errors import SettingsError, StoreError
from .deployment import Operator, deploy, reconfigure, require_deployment
from .record_copy import Difference, RecordCopy, State, compare
from .store_deployment import COPY_NAME, copy_in


def differences(
    operator: Operator, store: Store, models: Iterable[str] = ()
) -> tuple[list[Difference], list[LeftOut]]:
    """How the fleet differs from the copies in a store that are its own, and which are of no use.

    Args:
        operator: of the fleet.
        store: where the copies are.
        models: which models; none = all.

    Raises:
        StoreError: the storage refused.
        ServerError: the server failed.
    """
    found: list[Difference] = []
    left_out: list[LeftOut] = []
    for model in [*models] or store.survey().models:
        try:
            copy = copy_in(store, model)
        except (SettingsError, StoreError) as error:
            left_out.append(LeftOut(f"{model}/{COPY_NAME}", str(error)))
            continue
        if copy is None:
            continue
        if copy.namespace != operator.namespace:
            why = f"it is of the fleet {copy.namespace}"
            left_out.append(LeftOut(f"{model}/{COPY_NAME}", why))
        else:
            found.append(compare(copy, operator.deploy_hash(model)))
    return found, left_out


def restore(operator: Operator, difference: Difference) -> bool:
    """Bring a model back to what its copy says; False where it was undeployed a short time ago.

    Raises:
        ChangedError: somebody else has changed it meanwhile; compare again.
        ServerError: refused or unreachable; run it again.
    """
    copy = difference.copy
    if difference.state is State.BEHIND:
        _catch_up(operator, copy)
        return True
    keys = operator.keys(copy.model)
    versions = require_deployment(copy.model, copy.deploy_hash).versions.values()
    streams = [stream for record in versions for stream in fleet.queue_streams(keys, record)]
    nonce = operator.draw_nonce()
    made = operator.executor.run(fleet.mend(keys, copy.deploy_hash, copy.tenants, streams, nonce))
    if made == fleet.MARKED:
        return False
    operator.executor.run(fleet.enlist_model(operator.namespace, copy.model))
    return True


def _catch_up(operator: Operator, copy: RecordCopy) -> None:
    """Have a record of an earlier epoch say what the copy says."""
    model = copy.model
    wanted = require_deployment(model, copy.deploy_hash)
    plain = {name: raw for name, raw in copy.deploy_hash.items() if not name.startswith("set:")}
    record = require_deployment(model, plain).versions[wanted.stable]
    seen = require_deployment(model, operator.deploy_hash(model))
    deploy(operator, model, record, copy.tenants, seen.stamp)  # which admits tenants as well
    there = operator.deploy_hash(model)
    seen = require_deployment(model, there)
    fields = dict.fromkeys(there, b"") | dict(copy.deploy_hash)
    fields = {name: raw for name, raw in fields.items() if name not in ("epoch", "nonce")}
    keys = operator.keys(model)
    streams = [
        stream
        for version in wanted.versions.values()
        for stream in fleet.queue_streams(keys, version)
    ]
    reconfigure(operator, seen, fields, streams)
