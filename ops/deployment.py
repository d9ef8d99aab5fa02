"""Putting model versions in service, taking them out, and overriding their limits.

Plans are pure functions of what the fleet holds; each operation reads, plans, and runs one script.
Running an operation again changes nothing but the epoch.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ..broker import fleet
from ..broker.blocking import BlockingExecutor
from ..wire.canary import WorkerChoice
from ..wire.deployment import (
    Deployment,
    Stamp,
    VersionRecord,
    limits_from_wire,
)
from ..wire.errors import BatchfleetError, ErrorKind, RequestError, SettingsError
from ..wire.keys import ModelKeys
from ..wire.names import require_name, shown
from ..wire.reading import from_json

_OVERRIDE = "set:"
_DRAINING = "draining:"
# Others may change a model between a look and what follows from it.
CHANGED_TRIES = 10


class OpenRequestsError(BatchfleetError):
    """Requests are open that the operation would strand; wait for them, or force it."""


class ChangedError(BatchfleetError):
    """Somebody else has changed the deploy record since it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What a command needs to change a fleet.

    Attributes:
        executor: a connection.
        namespace: of the fleet.
        draw_nonce: makes new nonces. What stands before the last colon of one is how others are
            told who has changed a record, `user@host:pid`.
    """

    executor: BlockingExecutor
    namespace: str
    draw_nonce: Callable[[], str]

    def keys(self, model: str) -> ModelKeys:
        """The keys of one model.

        Raises:
            CallerError: `bad_request` where `model` is not a name.
        """
        return ModelKeys(self.namespace, require_name("model", model))

    def deploy_hash(self, model: str) -> Mapping[str, bytes]:
        """The deploy hash of a model as it lies on the server; empty where it is not deployed."""
        return self.executor.run(fleet.deploy_hash(self.keys(model)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What an operation left in force: the stable version and the epoch of the deploy record."""

    model: str
    version: str
    epoch: int


def deploy(
    operator: Operator,
    model: str,
    record: VersionRecord,
    tenants: Sequence[str],
    stamp: Stamp | None = None,
) -> Deployed:
    """Make `record` the stable version of `model` for `tenants`, and enlist the model.

    Args:
        operator: who does it.
        model: which model.
        record: of the version. Without a mark `deployed`, it gets a new one: workers look again at
            a version that they refuse.
        tenants: for whom, beside those for whom it is deployed already.
        stamp: that of the deploy record from which this follows; None = any, or none.

    Raises:
        ChangedError: the record is another by now.
        CallerError: `bad_request` where model, version or a tenant is not a name.
        ServerError: refused or unreachable; run it again.
    """
    keys = operator.keys(model)
    require_name("version", record.version)
    for tenant in tenants:
        require_name("tenant", tenant)
    streams = streams_of(keys, record, overrides_in(operator.deploy_hash(model)))
    nonce = operator.draw_nonce()
    marked = replace(record, deployed=record.deployed or nonce)
    command = fleet.deploy(keys, marked, streams, nonce, tenants, stamp)
    epoch = _require_changed(operator, model, operator.executor.run(command))
    # After the record: a program that sees the name must find the record.
    operator.executor.run(fleet.enlist_model(operator.namespace, model))
    return Deployed(model=model, version=record.version, epoch=epoch)


def reconfigure(
    operator: Operator, seen: Deployment, fields: Mapping[str, bytes], streams: Sequence[str] = ()
) -> Deployed:
    """Change fields of the deploy record that was seen, if it is still that one.

    Args:
        operator: who does it.
        seen: the record from which the change follows.
        fields: name → new value; empty = remove.
        streams: work streams that there have to be then.

    Raises:
        ChangedError: it is another by now; the text says who has changed it.
        CallerError: `unknown_model` where the model is not deployed any more.
        ServerError: refused or unreachable; read the record again.
    """
    keys, nonce = operator.keys(seen.model), operator.draw_nonce()
    epoch = operator.executor.run(fleet.configure(keys, fields, streams, nonce, seen.stamp))
    _require_changed(operator, seen.model, epoch)
    stable = fields.get("stable", b"").decode() or seen.stable
    return Deployed(model=seen.model, version=stable, epoch=epoch)


def _require_changed(operator: Operator, model: str, epoch: int) -> int:
    """The epoch that a script returned.

    Raises:
        ChangedError: none, since the record is another by now.
        CallerError: `unknown_model`.
    """
    if epoch == fleet.CHANGED:
        raise changed_error(model, operator.deploy_hash(model))
    if not epoch:
        raise unknown_model(model)
    return epoch


def change(
    operator: Operator,
    model: str,
    fields_of: Callable[[Deployment], Mapping[str, bytes]],
) -> Deployed | None:
    """Change what the record in force asks for; if it is another by then, look at that.

    Args:
        operator: who does it.
        model: which model.
        fields_of: which fields of a record to change; none = leave it as it is.

    Returns None where nothing was to be changed, or the model is not deployed.

    Raises:
        ChangedError: others change it all the time.
        SettingsError: the record cannot be read.
        ServerError: refused or unreachable; run it again.
    """
    for _ in range(CHANGED_TRIES):
        seen = Deployment.from_hash(model, operator.deploy_hash(model))
        fields = {} if seen is None else fields_of(seen)
        if seen is None or not fields:
            return None
        with suppress(ChangedError):
            return reconfigure(operator, seen, fields)
    raise changed_error(model, operator.deploy_hash(model))


def changed_error(model: str, deploy_hash: Mapping[str, bytes]) -> ChangedError:
    """The error that says who has changed a record, and to what."""
    nonce = deploy_hash.get("nonce", b"").decode(errors="replace")
    stable = deploy_hash.get("stable", b"").decode(errors="replace")
    who = plain_text(nonce.rpartition(":")[0]) if ":" in nonce else "somebody else"
    now = f"{model}/{plain_text(stable)} is its stable version" if stable else "it is not deployed"
    return ChangedError(f"{who} has changed {model} meanwhile: {now} now")


_PLAIN = re.compile(r"[A-Za-z0-9._@:-]{1,200}")


def plain_text(text: str) -> str:
    """A text that others wrote, for a message: quoted unless it is a plain word."""
    return text if _PLAIN.fullmatch(text) else shown(text)


def offer(
    operator: Operator, seen: Deployment, record: VersionRecord, choice: WorkerChoice | None = None
) -> Deployed:
    """Have workers load a version in addition to the stable one, which keeps serving.

    What the record says of the version otherwise, as that it is kept for going back, gives way.

    Args:
        operator: who does it.
        seen: the deploy record as read.
        record: of the version, with the `deployed` that marks it as the caller's.
        choice: the workers that shall load it; None = all.

    Raises:
        ChangedError: the record is another by now.
        CallerError: `unknown_model`, or `bad_request` where the version is not a name.
        ServerError: refused or unreachable; run it again.
    """
    keys, nonce = operator.keys(seen.model), operator.draw_nonce()
    require_name("version", record.version)
    streams = streams_of(keys, record, seen.overrides)
    marked = replace(record, deployed=record.deployed or nonce)
    command = fleet.offer(keys, marked, streams, nonce, seen.stamp, choice)
    epoch = _require_changed(operator, seen.model, operator.executor.run(command))
    return Deployed(model=seen.model, version=record.version, epoch=epoch)


def switch(operator: Operator, seen: Deployment, version: str) -> Deployed:
    """Make an offered version the stable one, and end what share of requests a canary got.

    Raises:
        ChangedError: the record is another by now.
        CallerError: `bad_request` where the version is not offered.
        ServerError: refused or unreachable; read the record again.
    """
    if version not in seen.versions:
        raise RequestError.of(ErrorKind.BAD_REQUEST, f"{seen.model}/{version} is not offered")
    fields = {"stable": version.encode(), "canary": b""}
    return reconfigure(operator, seen, fields)


def withdraw(operator: Operator, model: str, version: str, *, keep: bool = False) -> int:
    """Take a version that is not the stable one out of service; returns the entries it still has.

    0 means that it is gone. Running it again is harmless.

    Args:
        operator: who does it.
        model: which model.
        version: which version.
        keep: whether its record is kept, for going back.

    Raises:
        CallerError: `bad_request` where it is the stable version, or a canary.
        ServerError: refused or unreachable; run it again.
    """
    keys = operator.keys(model)
    deployed = Deployment.from_hash(model, operator.deploy_hash(model))
    record = None if deployed is None else deployed.versions.get(version)
    if record is None:
        return 0
    streams = fleet.queue_streams(keys, record)  # draining buckets as well
    left = operator.executor.run(fleet.withdraw(keys, version, streams, keep=keep))
    if left < 0:
        raise takes_requests(model, version)
    return left


def takes_requests(model: str, version: str) -> RequestError:
    """The error that says that a version cannot be withdrawn."""
    return RequestError.of(
        ErrorKind.BAD_REQUEST,
        f"{model}/{plain_text(version)} takes requests that name no version; deploy another first",
    )


def overrides_in(deploy_hash: Mapping[str, bytes]) -> dict[str, Any]:
    """The operator's overrides in a deploy hash: limit name → value."""
    return {
        name.removeprefix(_OVERRIDE): from_json(name, value)
        for name, value in deploy_hash.items()
        if name.startswith(_OVERRIDE)
    }


def without_overrides(deploy_hash: Mapping[str, bytes]) -> dict[str, bytes]:
    """A deploy hash with the manifests' own limits in force."""
    return {name: raw for name, raw in deploy_hash.items() if not name.startswith(_OVERRIDE)}


def streams_of(keys: ModelKeys, record: VersionRecord, overrides: Mapping[str, Any]) -> list[str]:
    """The work streams that a version needs with these overrides in force."""
    limits = record.limits
    if "buckets" in overrides:
        limits = limits_from_wire({"buckets": overrides["buckets"]}, limits)
    return fleet.queue_streams(keys, replace(record, limits=limits))


def override(operator: Operator, model: str, changes: Mapping[str, Any]) -> Deployed:
    """Override limits of a deployed model; a value of None takes an override back.

    Buckets that go out of service drain: workers read them until they are empty.

    Raises:
        CallerError: `unknown_model`.
        SettingsError: what would then be in force is not allowed.
    """
    keys = operator.keys(model)
    before = operator.deploy_hash(model)
    after = with_changes(before, changes)
    was, would_be = require_deployment(model, before), require_deployment(model, after)
    changed = {
        _OVERRIDE + name: b"" if value is None else orjson.dumps(value)
        for name, value in changes.items()
    }
    streams = [
        stream
        for record in would_be.versions.values()
        for stream in fleet.queue_streams(keys, replace(record, draining=()))
    ]
    command = fleet.configure(
        keys, {**changed, **draining_fields(was, would_be)}, streams, operator.draw_nonce()
    )
    epoch = operator.executor.run(command)
    return Deployed(model=model, version=was.stable, epoch=epoch)


def set_intake(operator: Operator, model: str, intake: str) -> Deployed:
    """Open, hold or refuse the intake of a deployed model (`INTAKES`).

    `hold`: requests are accepted and wait, workers take nothing. `refuse`: routers answer new ones
    `unavailable`, workers finish what was accepted. Programs follow within their `refresh_ms`.

    Raises:
        CallerError: `unknown_model`.
        ServerError: refused or unreachable; run it again.
    """
    keys = operator.keys(model)
    stable = require_deployment(model, operator.deploy_hash(model)).stable
    command = fleet.configure(keys, {"intake": intake.encode()}, (), operator.draw_nonce())
    epoch = operator.executor.run(command)
    return Deployed(model=model, version=stable, epoch=epoch)


def draining_fields(was: Deployment, would_be: Deployment) -> dict[str, bytes]:
    """The fields that list which buckets drain, for each version where that changes."""
    found: dict[str, bytes] = {}
    for version, record in would_be.versions.items():
        before = was.versions[version]
        left = sorted(set(before.edges) - set(record.limits.buckets))
        if left != sorted(before.draining):
            found[f"{_DRAINING}{version}"] = orjson.dumps(left) if left else b""
    return found


def with_changes(
    deploy_hash: Mapping[str, bytes], changes: Mapping[str, Any]
) -> Mapping[str, bytes]:
    """The deploy hash as it will be once `changes` are made."""
    changed = {_OVERRIDE + name for name in changes}
    kept = {name: value for name, value in deploy_hash.items() if name not in changed}
    new = {
        _OVERRIDE + name: orjson.dumps(value)
        for name, value in changes.items()
        if value is not None
    }
    return {**kept, **new}


def require_deployment(model: str, deploy_hash: Mapping[str, bytes]) -> Deployment:
    """Read a deploy hash.

    Raises:
        CallerError: `unknown_model` where the model is not deployed.
        SettingsError: its content is invalid.
    """
    found = Deployment.from_hash(model, deploy_hash)
    if found is None:
        raise unknown_model(model)
    return found


def unknown_model(model: str) -> RequestError:
    """The error that says that a model is not deployed."""
    return RequestError.of(ErrorKind.UNKNOWN_MODEL, f"no model {shown(model)} is deployed")


def undeploy(
    operator: Operator, model: str, *, forced: bool = False, only: Stamp | None = None
) -> int:
    """Take a model out of service; returns how many open requests were forgotten by force.

    Args:
        operator: who does it.
        model: which model.
        forced: also where requests are open.
        only: if the deploy record is still this one; None = any.

    Raises:
        CallerError: `unknown_model`.
        ChangedError: it is another than `only` says.
        OpenRequestsError: requests are open, and it was not forced.
        SettingsError: others kept changing the model meanwhile.
    """
    keys = operator.keys(model)
    removed, open_requests = fleet.CHANGED, 0
    for _ in range(CHANGED_TRIES):
        deploy_hash = operator.deploy_hash(model)
        stamp = require_deployment(model, deploy_hash).stamp
        if only not in (None, stamp):
            raise changed_error(model, deploy_hash)
        tenants = operator.executor.run(fleet.tenants(keys))
        others = keys_to_remove(keys, deploy_hash, tenants)
        command = fleet.undeploy(keys, others, forced=forced, stamp=stamp)
        removed, open_requests = operator.executor.run(command)
        if removed != fleet.CHANGED:
            break
    if removed == fleet.CHANGED:
        raise SettingsError(f"somebody else is changing {model}; try again")
    if not removed:
        raise OpenRequestsError(
            f"{open_requests} requests of {model} are open; wait, or use --force: "
            "it drops them, and their callers time out"
        )
    operator.executor.run(fleet.delist_model(operator.namespace, model))
    return open_requests


def keys_to_remove(
    keys: ModelKeys, deploy_hash: Mapping[str, bytes], tenants: Iterable[str]
) -> list[str]:
    """Streams and bells of all versions and tenants of a model."""
    versions = require_deployment(keys.model, deploy_hash).versions.values()
    streams = [stream for record in versions for stream in fleet.queue_streams(keys, record)]
    bells = [keys.bell(record.version) for record in versions]
    ingress = [keys.ingress(tenant) for tenant in tenants]
    return [*streams, *bells, *ingress]
