"""Commands on the fleet: deploy records, and the server itself."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..wire.canary import WorkerChoice
from ..wire.deployment import Deployment, Stamp, VersionRecord
from ..wire.keys import PRIORITIES, ModelKeys, models_key
from ..wire.stats import VersionStats, read_stats, stats_fields
from .commands import Command, Part, as_flat, as_is, as_map, as_names, call, plain


def models(namespace: str) -> Command[list[str]]:
    """Names of the deployed models."""
    return plain(as_names, "SMEMBERS", models_key(namespace))


def enlist_model(namespace: str, model: str) -> Command[int]:
    """Add a name to the deployed models; a key of its own slot, hence not part of `deploy`."""
    return enlist_models(namespace, [model])


def enlist_models(namespace: str, models: Sequence[str]) -> Command[int]:
    """Add names to the deployed models, all at once."""
    return plain(int, "SADD", models_key(namespace), *models)


def delist_model(namespace: str, model: str) -> Command[int]:
    """Take a name from the deployed models."""
    return plain(int, "SREM", models_key(namespace), model)


def tenants(keys: ModelKeys) -> Command[list[str]]:
    """Tenants that the model is deployed for."""
    return plain(as_names, "SMEMBERS", keys.tenants)


def deployment(keys: ModelKeys) -> Command[Deployment | None]:
    """The deploy record; None where the model is not deployed."""
    read = lambda raw: Deployment.from_hash(keys.model, as_map(raw))  # noqa: E731 - a reader
    return plain(read, "HGETALL", keys.deploy)


def deploy_hash(keys: ModelKeys) -> Command[dict[str, bytes]]:
    """The deploy hash as stored, for operators; `Deployment.from_hash` reads it."""
    return plain(as_map, "HGETALL", keys.deploy)


def deploy_stamp(keys: ModelKeys) -> Command[Stamp | None]:
    """Epoch and nonce of the deploy record; None where the model is not deployed."""
    read = lambda raw: None if raw[0] is None else Stamp.from_wire(raw[1], raw[2])  # noqa: E731 - a reader
    return plain(read, "HMGET", keys.deploy, "stable", "epoch", "nonce")


def is_deployed(keys: ModelKeys) -> Command[bool]:
    """Whether the model has a deploy record."""
    return plain(bool, "EXISTS", keys.deploy)


def is_undeployed(keys: ModelKeys) -> Command[bool]:
    """Whether an operator undeployed the model recently."""
    return plain(bool, "EXISTS", keys.undeployed)


def queue_streams(keys: ModelKeys, record: VersionRecord) -> list[str]:
    """The work streams of a version, the higher priority first; draining ones as well."""
    edges = record.edges
    return [keys.queue(record.version, priority, edge) for priority in PRIORITIES for edge in edges]


def deploy(
    keys: ModelKeys,
    record: VersionRecord,
    streams: Sequence[str],
    nonce: str,
    tenants: Sequence[str],
    stamp: Stamp | None = None,
) -> Command[int]:
    """Make `record` the stable version, with `streams` for its work.

    `stamp` is that of the record that decided about it; None = any, or none. Returns the new epoch,
    `CHANGED` where the record is another by now.
    """
    ingress = [keys.ingress(tenant) for tenant in tenants]
    kept = (keys.workers, keys.lost, keys.journal, keys.dead)
    script_keys = [keys.deploy, keys.tenants, keys.undeployed, *kept, *ingress, *streams]
    args: list[Part] = [record.version, record.to_wire(), nonce, len(tenants), *tenants]
    args += stamp or ()
    return call("deploy", script_keys, args, int)


def offer(
    keys: ModelKeys,
    record: VersionRecord,
    streams: Sequence[str],
    nonce: str,
    stamp: Stamp | None = None,
    choice: WorkerChoice | None = None,
) -> Command[int]:
    """Add a version beside the stable one, for all workers to load, or those of a choice.

    It is not kept any more. `stamp` and the result are those of `configure`.
    """
    fields = {
        f"version:{record.version}": record.to_wire(),
        f"kept:{record.version}": b"",
        f"workers:{record.version}": b"" if choice is None else choice.to_wire(),
    }
    return configure(keys, fields, streams, nonce, stamp)


# Workers that have not seen the new record by then are cut off from the server.
_WITHDRAWN_STREAMS_MS = 3_600_000
IS_STABLE, IS_CANARY = -1, -2


def withdraw(
    keys: ModelKeys, version: str, streams: Sequence[str], *, keep: bool = False
) -> Command[int]:
    """Take out a version without work, or `keep` its record for going back to it.

    Returns the entries left, `IS_STABLE` or `IS_CANARY`; 0 = it is not offered any more.
    """
    args: list[Part] = [version, _WITHDRAWN_STREAMS_MS, int(keep)]
    return call("withdraw", [keys.deploy, *streams], args, int)


def drop_entries(stream: str) -> Command[int]:
    """Remove all entries of a work stream; returns how many. Who has taken one finishes it."""
    return plain(int, "XTRIM", stream, "MAXLEN", 0)


# The record is another than the one that was read.
CHANGED = -1


def configure(
    keys: ModelKeys,
    fields: Mapping[str, bytes],
    streams: Sequence[str],
    nonce: str,
    stamp: Stamp | None = None,
) -> Command[int]:
    """Set fields of the deploy record (empty = remove), all of them or none.

    `stamp` is that of the record that decided about them; None = any. Returns the new epoch, 0 if
    not deployed, `CHANGED` where the record is another by now.
    """
    args: list[Part] = [nonce, len(fields), *as_flat(fields), *(stamp or ())]
    return call("configure", [keys.deploy, *streams], args, int)


def remove_bucket(keys: ModelKeys, version: str, edge: int) -> Command[bool]:
    """Remove the streams of a draining bucket if they are empty; whether they are gone."""
    streams = [keys.queue(version, priority, edge) for priority in PRIORITIES]
    return call("remove_bucket", [keys.deploy, *streams], [f"draining:{version}", edge], bool)


# A router that was out of contact for longer than this forgets what it knew of the fleet, so that
# it cannot bring back a model whose mark has expired.
UNDEPLOYED_MARK_MS = 3_600_000
# Dead letters and the journal of an undeployed model.
LEFT_BEHIND_MS = 7 * 86_400_000


def undeploy(
    keys: ModelKeys, other_keys: Sequence[str], *, forced: bool, stamp: Stamp | None = None
) -> Command[tuple[int, int]]:
    """Remove a model's keys, or give those that are still of use an end.

    Args:
        keys: those of the model.
        other_keys: its streams and bells, as far as the record names them.
        forced: also where requests are open.
        stamp: that of the record that names them; None = any.

    Returns whether it was done (1 or 0, `CHANGED` where the record is another by now), and how many
    requests are open.
    """
    kept = (keys.workers, keys.lost, keys.journal, keys.dead)
    requests = (keys.due, keys.tenants, keys.later, keys.parked, keys.ttl)
    removed = (keys.deploy, *requests, keys.stats, keys.rolls, keys.roll_counts)
    script_keys = [keys.undeployed, *kept, *removed, *other_keys]
    args: list[Part] = ["1" if forced else "0", UNDEPLOYED_MARK_MS, LEFT_BEHIND_MS, *(stamp or ())]
    return call("undeploy", script_keys, args, lambda raw: (raw[0], raw[1]))


def stats(keys: ModelKeys) -> Command[dict[str, VersionStats]]:
    """What each version of a model has answered since it was deployed."""
    return plain(lambda raw: read_stats(as_map(raw)), "HGETALL", keys.stats)


def forget_stats(keys: ModelKeys, versions: Sequence[str]) -> Command[int]:
    """Remove the counts of versions that are gone; at least one."""
    return plain(int, "HDEL", keys.stats, *(name for v in versions for name in stats_fields(v)))


RESTORED, MARKED = -1, -2
_RESTORED_NONCE = re.compile(rb"restored:([0-9]{1,19}):")


def known_epoch(record: Mapping[str, bytes]) -> tuple[int, bool]:
    """The epoch of what a record says, and whether a router has put it back since.

    A record that was put back has a higher epoch, and says no more than was known before.
    """
    found = _RESTORED_NONCE.match(record.get("nonce", b""))
    epoch = record.get("epoch", b"0") if found is None else found[1]
    return int(epoch), found is not None


def mend(
    keys: ModelKeys,
    known: Mapping[str, bytes],
    tenants: Sequence[str],
    streams: Sequence[str],
    nonce: str,
) -> Command[int]:
    """Restore what is missing of a deployed model: record, tenants, streams, groups.

    Args:
        keys: those of the model.
        known: the deploy hash as it was last read.
        tenants: those it is deployed for; empty where they are not known.
        streams: all its work streams.
        nonce: part of the nonce of a record that has to be restored, so that it is a new one.

    Returns how many keys and groups were created, `RESTORED` where the record was missing as well,
    or `MARKED` where the model was undeployed.
    """
    ingress = [keys.ingress(tenant) for tenant in tenants]
    script_keys = [keys.deploy, keys.tenants, keys.undeployed, *ingress, *streams]
    nonce = f"restored:{known_epoch(known)[0]}:{nonce}"
    epoch = known.get("epoch", b"0")
    args: list[Part] = [epoch, nonce, len(tenants), *tenants, *as_flat(known)]
    return call("mend", script_keys, args, int)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What matters of the server's INFO."""

    version: str
    run_id: str
    used_memory: int
    maxmemory: int
    maxmemory_policy: str
    append_only: bool


def _read_info(raw: bytes) -> ServerInfo:
    lines = (line.partition(":") for line in raw.decode().splitlines() if ":" in line)
    info = {name: value for name, _, value in lines}
    return ServerInfo(
        version=info.get("valkey_version") or info.get("redis_version", ""),
        run_id=info.get("run_id", ""),
        used_memory=int(info.get("used_memory", 0)),
        maxmemory=int(info.get("maxmemory", 0)),
        maxmemory_policy=info.get("maxmemory_policy", ""),
        append_only=info.get("aof_enabled") == "1",
    )


def server_info() -> Command[ServerInfo]:
    """Version, identity, memory and persistence of the server."""
    return plain(_read_info, "INFO", "server", "memory", "persistence")


def ping() -> Command[Any]:
    """Ask whether the server answers."""
    return plain(as_is, "PING")


def server_time() -> Command[float]:
    """The server's clock, ms since 1970."""
    return plain(lambda raw: int(raw[0]) * 1000 + int(raw[1]) / 1000, "TIME")
