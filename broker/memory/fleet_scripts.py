"""The scripts of `broker/lua/` about the fleet, in Python: workers and deploy records."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from ..commands import Part
from ..errors import RefusedError, UnusableKeyError, refused
from .script_calls import Args, Call, Keys, ScriptFunction, member_of, next_epoch, require_record

# The life of workers.


def join(call: Call, keys: Keys, args: Args) -> Any:
    """Enter a new worker among the living."""
    workers, lost, announcement, record = keys
    if call("ZSCORE", workers, args[0]) is not None or call("SISMEMBER", lost, args[0]):
        return 0
    if not call("EXISTS", record):
        return 0
    call("ZADD", workers, 1, args[0])
    _announce(call, announcement, args[2:])
    call("PEXPIRE", announcement, args[1])
    return 1


def beat(call: Call, keys: Keys, args: Args) -> Any:
    """Say "still here" by moving the worker's counter."""
    written = call("ZADD", keys[0], "XX", "INCR", 1, args[0])
    if written is None:
        return 0
    counter = float(written)
    if not (1 <= counter < 2**53 and counter % 1 == 0):  # a foreign hand's
        counter = 1
        call("ZADD", keys[0], counter, args[0])
    _announce(call, keys[1], args[2:])
    call("PEXPIRE", keys[1], args[1])
    return int(counter)


def _announce(call: Call, announcement: bytes, fields: Args) -> None:
    """Write fields of a worker's hash; a foreign key in its place gives way."""
    try:
        call("HLEN", announcement)
    except RefusedError:
        call("DEL", announcement)
    if fields:
        call("HSET", announcement, *fields)


def leave(call: Call, keys: Keys, args: Args) -> Any:
    """A worker goes by its own will."""
    workers, lost, announcement, bell, record = keys
    call("SCARD", lost)  # before anything is written: it may be of a foreign kind
    left = call("ZREM", workers, args[0])
    if call("EXISTS", record):
        call("SADD", lost, args[0])
    if left == 1:
        call("DEL", announcement)
    call("DEL", bell)
    return left


def inside(call: Call, keys: Keys, args: Args) -> Any:
    """Write down which requests are inside a worker's device process."""
    workers, announcement = keys
    if call("ZSCORE", workers, args[0]) is None:
        return 0
    _announce(call, announcement, (b"inside", args[1]))
    if call("PTTL", announcement) < 0:
        call("PEXPIRE", announcement, args[2])
    return 1


def ring(call: Call, keys: Keys, args: Args) -> Any:
    """Wake one worker."""
    if call("ZSCORE", keys[0], args[0]) is None:
        return 0
    try:
        call("RPUSH", keys[1], "1")
    except RefusedError:  # a foreign key in the place of the bell gives way
        call("DEL", keys[1])
        call("RPUSH", keys[1], "1")
    call("PEXPIRE", keys[1], args[1])
    return 1


# Recovery.


def bury(call: Call, keys: Keys, args: Args) -> Any:
    """Declare a worker dead, if its counter still stands still."""
    workers, lost, announcement, record = keys
    worker, counter, kept_ms = args
    call("SCARD", lost)  # before anything is written: it may be of a foreign kind
    found = call("ZSCORE", workers, worker)
    if found is None or float(found) != float(counter):
        return 0
    call("ZREM", workers, worker)
    if call("EXISTS", record):
        call("SADD", lost, worker)
    call("PEXPIRE", announcement, kept_ms)
    return 1


def recover(call: Call, keys: Keys, args: Args) -> Any:
    """Take over entries that a lost worker had taken."""
    workers, due, lost, announcement, stream, record = keys
    worker, gone, count, *stamp = args
    if call("ZSCORE", workers, worker) is None:
        raise refused("FENCED the worker is not among the living")
    require_record(call, record, stamp)
    if not call("SISMEMBER", lost, gone):
        return []
    call("ZCARD", due)  # before anything is written: it may be of a foreign kind
    pending = _pending_of(call, stream, gone, int(count))
    inside = _noted_inside(call, announcement)
    taken = []
    for entry_id, _, _, attempt in pending:
        entries = call("XRANGE", stream, entry_id, entry_id)
        fields = entries[0][1] if entries else []
        member = member_of(fields)
        if not entries or call("ZSCORE", due, member) is None:
            call("XACK", stream, "worker", entry_id)
            call("XDEL", stream, entry_id)
            continue
        attempts = max(1, min(attempt, 1_000_000)) + (member in inside)
        call(
            "XCLAIM", stream, "worker", worker, 0, entry_id, "RETRYCOUNT", attempts, "JUSTID"
        )  # fmt: skip
        taken.append([entry_id, attempts, int(member in inside), fields])
    return taken


def _noted_inside(call: Call, announcement: bytes) -> set[bytes]:
    """What a lost worker noted; a foreign key in its place tells nothing."""
    try:
        return set((call("HGET", announcement, "inside") or b"").split())
    except RefusedError:
        return set()


def _pending_of(call: Call, stream: bytes, worker: bytes, count: int) -> list[Any]:
    try:
        found: list[Any] = call("XPENDING", stream, "worker", "-", "+", count, worker)
    except RefusedError:  # the stream was just removed
        return []
    return found


def retire(call: Call, keys: Keys, args: Args) -> Any:
    """Forget a lost worker once nothing is pending for it any more."""
    lost, announcement, bell, *streams = keys
    call("SCARD", lost)  # before anything is written: it may be of a foreign kind
    if any(_pending_of(call, stream, args[0], 1) for stream in streams):
        return 0
    for stream in streams:
        with suppress(RefusedError):  # the stream was just removed
            call("XGROUP", "DELCONSUMER", stream, "worker", args[0])
    call("SREM", lost, args[0])
    call("DEL", announcement, bell)
    return 1


# Deploy records.


def _require_streams(call: Call, streams: Keys) -> None:
    for stream in streams:
        call("XLEN", stream)


def _make_streams(call: Call, streams: Keys, group: str) -> None:
    for stream in streams:
        call("PERSIST", stream)
        try:
            call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        except RefusedError as error:
            if error.code != "BUSYGROUP":
                raise


def deploy(call: Call, keys: Keys, args: Args) -> Any:
    """Make a version the stable one of its model, with its streams and groups."""
    record, members, mark, *kept = keys[:7]
    streams, tenants = keys[7:], int(args[3])
    version: list[Part] = [b"stable", args[0], b"version:" + args[0], args[1]]
    call("HLEN", record)
    call("SCARD", members)
    _require_streams(call, streams)
    _make_streams(call, streams[:tenants], "router")
    _make_streams(call, streams[tenants:], "worker")
    call("DEL", mark)
    for key in kept:
        call("PERSIST", key)
    if tenants:
        call("SADD", members, *args[4 : 4 + tenants])
    call("HSETNX", record, "intake", "open")
    call("HSET", record, *version, "nonce", args[2])
    return next_epoch(call, record)


def offer(call: Call, keys: Keys, args: Args) -> Any:
    """Add a version beside the stable one, with its streams and groups."""
    record, (version, content, nonce) = keys[0], args
    if not call("HEXISTS", record, "stable"):
        return 0
    _require_streams(call, keys[1:])
    _make_streams(call, keys[1:], "worker")
    call("HSET", record, b"version:" + version, content, "nonce", nonce)
    return next_epoch(call, record)


def withdraw(call: Call, keys: Keys, args: Args) -> Any:
    """Take a version that is not the stable one out of the record, once it has no work left."""
    record, (version, kept_ms) = keys[0], args
    if call("HGET", record, "stable") == version:
        return -1
    left = sum(call("XLEN", stream) for stream in keys[1:])
    if left:
        return left
    if call("HDEL", record, b"version:" + version) == 1:
        call("HDEL", record, b"draining:" + version)
        next_epoch(call, record)
    for stream in keys[1:]:
        call("PEXPIRE", stream, kept_ms)
    return 0


def configure(call: Call, keys: Keys, args: Args) -> Any:
    """Override limits of a deployed model, or take overrides back."""
    record = keys[0]
    if not call("HLEN", record):
        return 0
    _require_streams(call, keys[1:])
    _make_streams(call, keys[1:], "worker")
    for at in range(int(args[1])):
        name, value = args[2 + 2 * at], args[3 + 2 * at]
        if value:
            call("HSET", record, name, value)
        else:
            call("HDEL", record, name)
    call("HSET", record, "nonce", args[0])
    return next_epoch(call, record)


def remove_bucket(call: Call, keys: Keys, args: Args) -> Any:
    """Remove the streams of a bucket out of service, once nothing lies in them."""
    record, field, edge = keys[0], args[0], int(args[1])
    listed = _edges(call("HGET", record, field))
    if edge not in listed or any(_has_work(call, stream) for stream in keys[1:]):
        return 0
    others = [one for one in listed if one != edge]
    if others:
        call("HSET", record, field, orjson.dumps(others))
    else:
        call("HDEL", record, field)
    next_epoch(call, record)
    call("DEL", *keys[1:])
    return 1


def _edges(raw: bytes | None) -> list[int]:
    """The edges in a field of the record; none in what a foreign hand has written."""
    try:
        listed = orjson.loads(raw or b"[]")
    except orjson.JSONDecodeError:
        return []
    is_list = isinstance(listed, list) and all(type(edge) in (int, float) for edge in listed)
    return listed if is_list else []


def _has_work(call: Call, stream: bytes) -> bool:
    if call("XLEN", stream):
        return True
    try:
        return bool(call("XPENDING", stream, "worker")[0])
    except RefusedError:  # the stream is gone
        return False


def undeploy(call: Call, keys: Keys, args: Args) -> Any:
    """Take a model out of service."""
    mark, workers, lost, journal, dead, record, due, *others = keys
    forced, mark_ms, kept_ms, *stamp = args
    epoch, nonce = call("HMGET", record, "epoch", "nonce")
    if stamp and [epoch or b"0", nonce or b""] != stamp:
        return [-1, 0]
    try:
        open_requests = call("ZCARD", due)
    except UnusableKeyError:
        if forced != b"1":
            raise
        open_requests = 0
    if open_requests > 0 and forced != b"1":
        return [0, open_requests]
    call("DEL", *others, record, due)
    call("SET", mark, "1", "PX", mark_ms)
    for key, ttl_ms in ((workers, mark_ms), (lost, mark_ms), (journal, kept_ms), (dead, kept_ms)):
        call("PEXPIRE", key, ttl_ms)
    return [1, open_requests]


def mend(call: Call, keys: Keys, args: Args) -> Any:
    """Make anew what is missing of a deployed model."""
    record, tenants_key, mark, *streams = keys
    count = int(args[2])
    if call("EXISTS", mark):
        return -2
    stable, epoch, nonce = (call("HGET", record, name) for name in ("stable", "epoch", "nonce"))
    there, here = _known_there(nonce or b""), _known_there(args[1])
    restores = stable is None or -1 < there < here
    if not restores and (epoch or b"0") != args[0]:
        return 0
    if restores:
        call("DEL", record)
        call("HSET", record, *args[3 + count :])
        call("HSET", record, "nonce", args[1])
        next_epoch(call, record)
    made = 0
    foreign = []
    try:
        if count and (call("SCARD", tenants_key) == 0 or restores):
            call("SADD", tenants_key, *args[3 : 3 + count])
            made += 1
    except UnusableKeyError:
        foreign.append(tenants_key)
    for stream in streams:
        if _has_group(call, stream):
            continue
        group = "router" if stream in streams[:count] else "worker"
        try:
            call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
            made += 1
        except UnusableKeyError:
            foreign.append(stream)
    if foreign:
        raise refused(f"WRONGTYPE {foreign[0].decode()} is of a foreign kind")
    return -1 if restores else made


def _known_there(nonce: bytes) -> int:
    found = re.match(rb"restored:(\d+):", nonce)
    return -1 if found is None else int(found[1])


def _has_group(call: Call, stream: bytes) -> bool:
    try:
        return bool(call("XINFO", "GROUPS", stream))
    except RefusedError:  # there is no such stream
        return False


def prune(call: Call, keys: Keys, args: Args) -> Any:
    """Forget routers that have read nothing for long and have nothing pending."""
    try:
        consumers = call("XINFO", "CONSUMERS", keys[0], "router")
    except RefusedError:  # the stream is gone
        return 0
    gone = 0
    for consumer in consumers:
        facts = dict(zip(consumer[::2], consumer[1::2], strict=True))
        if facts[b"pending"] == 0 and facts[b"idle"] > int(args[0]):
            call("XGROUP", "DELCONSUMER", keys[0], "router", facts[b"name"])
            gone += 1
    return gone


def rights(_call: Call, _keys: Keys, _args: Args) -> list[int]:
    """Which commands the user may not run: here, everybody may do everything."""
    return []


_FUNCTIONS: Sequence[ScriptFunction] = (
    join, beat, leave, inside, ring, bury, recover, retire,
    deploy, offer, withdraw, configure, remove_bucket, undeploy, mend, prune, rights,
)  # fmt: skip
FLEET_SCRIPTS: Mapping[str, ScriptFunction] = {each.__name__: each for each in _FUNCTIONS}
