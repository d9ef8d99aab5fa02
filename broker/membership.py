"""Commands on the members of a model's fleet: live workers, and lost ones until recovered."""

from collections.abc import Mapping, Sequence

from ..wire.keys import ModelKeys
from .commands import Command, as_flat, as_map, as_names, call, plain


def join(
    keys: ModelKeys, worker: str, ttl_ms: int, fields: Mapping[str, str | bytes]
) -> Command[bool]:
    """Add a new worker to the live ones.

    False where the name was used before, and where the model is not deployed.
    """
    script_keys = [keys.workers, keys.lost, keys.worker(worker), keys.deploy]
    return call("join", script_keys, [worker, ttl_ms, *as_flat(fields)], bool)


def beat(
    keys: ModelKeys, worker: str, ttl_ms: int, fields: Mapping[str, str | bytes]
) -> Command[int]:
    """Renew a worker's lease; 0 where it is not a live worker any more."""
    script_keys = [keys.workers, keys.worker(worker)]
    return call("beat", script_keys, [worker, ttl_ms, *as_flat(fields)], int)


def leave(keys: ModelKeys, worker: str) -> Command[bool]:
    """Leave the live workers; peers recover at once what is left. False where it was not live."""
    own = (keys.worker(worker), keys.worker_bell(worker))
    return call("leave", [keys.workers, keys.lost, *own, keys.deploy], [worker], bool)


def vanish(keys: ModelKeys, worker: str) -> list[Command[int]]:
    """Remove a worker's keys of a model that is not deployed any more."""
    hash_and_bell = (keys.worker(worker), keys.worker_bell(worker))
    return [plain(int, "ZREM", keys.workers, worker), plain(int, "DEL", *hash_and_bell)]


def ring(keys: ModelKeys, worker: str) -> Command[bool]:
    """Wake one worker; False where it is not a live one."""
    return call("ring", [keys.workers, keys.worker_bell(worker)], [worker], bool)


def forget_bells(bells: Sequence[str]) -> Command[int]:
    """Remove bells, whatever their type; the next ring creates them again."""
    return plain(int, "UNLINK", *bells)


def living(keys: ModelKeys) -> Command[list[str]]:
    """Names of the live workers."""
    return plain(as_names, "ZRANGE", keys.workers, 0, -1)


def beat_counters(keys: ModelKeys) -> Command[dict[str, float]]:
    """The live workers of a model with their beat counters."""
    return plain(_read_counters, "ZRANGE", keys.workers, 0, -1, "WITHSCORES")


def _read_counters(raw: Sequence[bytes]) -> dict[str, float]:
    return {raw[at].decode(errors="replace"): float(raw[at + 1]) for at in range(0, len(raw), 2)}


_BURIED_HASH_MS = 600_000


def bury(keys: ModelKeys, worker: str, counter: float) -> Command[bool]:
    """Declare a worker dead if its counter is still the one seen; False where it is not."""
    script_keys = [keys.workers, keys.lost, keys.worker(worker), keys.deploy]
    return call("bury", script_keys, [worker, counter, _BURIED_HASH_MS], bool)


def lost(keys: ModelKeys) -> Command[list[str]]:
    """Workers that are gone and may have left entries behind."""
    return plain(as_names, "SMEMBERS", keys.lost)


def retire(keys: ModelKeys, worker: str, streams: Sequence[str]) -> Command[bool]:
    """Forget a lost worker if nothing is pending for it in any of `streams`."""
    script_keys = [keys.lost, keys.worker(worker), keys.worker_bell(worker), *streams]
    return call("retire", script_keys, [worker], bool)


def note_inside(keys: ModelKeys, worker: str, members: Sequence[str]) -> Command[int]:
    """Note which requests are inside the worker's device process, for its peers."""
    script_keys = [keys.workers, keys.worker(worker)]
    return call("inside", script_keys, [worker, " ".join(members), _BURIED_HASH_MS], int)


def announcement(keys: ModelKeys, worker: str) -> Command[dict[str, bytes]]:
    """A worker's announcement; empty once its TTL has passed without a beat."""
    return plain(as_map, "HGETALL", keys.worker(worker))
