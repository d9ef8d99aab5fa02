"""The scripts of `broker/lua/` about parked requests, dead letters and lists, in Python."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import RefusedError
from .script_calls import (
    PARTS_MAX,
    Args,
    Call,
    Keys,
    ScriptFunction,
    has_added,
    has_parked,
    is_mine,
    member_of,
    now_ms,
    parked_entry,
    require_record,
    ring_bell,
)


def ripe(call: Call, keys: Keys, args: Args) -> Any:
    """Which parked requests are due to be moved to their queues."""
    later, parked = keys
    found = []
    for parked_id in call("ZRANGEBYSCORE", later, "-inf", now_ms(call), "LIMIT", 0, args[0]):
        fields = parked_entry(call, parked, parked_id) or []
        named = dict(zip(fields[4::2], fields[5::2], strict=True))
        place = [*fields[1:8:2], *[b""] * 4][:4]
        found.append([parked_id, *place, named.get(b"version", b"")])
    return found


def promote(call: Call, keys: Keys, args: Args) -> Any:
    """Move parked requests to their queues."""
    due, later, parked, record, *places = keys
    require_record(call, record, args[:2])
    for command, key in (("ZCARD", due), ("ZCARD", later), ("XLEN", parked)):
        call(command, key)
    outcomes = []
    for at, parked_id in enumerate(args[2:]):
        outcome = _promote(call, (due, parked), parked_id, places[2 * at : 2 * at + 2])
        if outcome != b"STALE":
            with suppress(RefusedError):  # it is no entry id
                call("XDEL", parked, parked_id)
            call("ZREM", later, parked_id)
        outcomes.append(outcome)
    return outcomes


def _promote(call: Call, keys: Keys, parked_id: bytes, place: Keys) -> bytes:
    (due, parked), (queue, bell) = keys, place
    fields = parked_entry(call, parked, parked_id)
    if fields is None:
        return b"GONE"
    # One that a foreign hand wrote belongs to no request, and is ended with the closed ones.
    if len(fields) > PARTS_MAX or call("ZSCORE", due, member_of(fields[4:])) is None:
        return b"CLOSED"
    if not has_added(call, queue, fields[4:]):
        return b"STALE"
    ring_bell(call, bell)
    return b"MOVED"


def retry(call: Call, keys: Keys, args: Args) -> Any:
    """Park a request that failed, to run again after a while."""
    due, later, parked, stream, bell = keys
    worker, entry_id, member, delay_ms, attempt, retries = args
    if not is_mine(call, stream, entry_id, worker):
        return b"NOT_MINE"
    entries = call("XRANGE", stream, entry_id, entry_id)
    outcome = b"CLOSED"
    if entries and call("ZSCORE", due, member) is not None:
        named = list(zip(entries[0][1][::2], entries[0][1][1::2], strict=True))
        kept = [pair for pair in named[2:] if pair[0] not in (b"attempt", b"retries")]
        counts = [(b"attempt", attempt), (b"retries", retries)]
        fields = [part for pair in (*named[:2], *counts, *kept) for part in pair]
        body = ("queue", stream, "bell", bell, *fields)
        at_ms = now_ms(call) + int(delay_ms)
        if len(body) > PARTS_MAX or not has_parked(call, (later, parked), at_ms, body):
            return b"STALE"
        outcome = b"PARKED"
    call("XACK", stream, "worker", entry_id)
    call("XDEL", stream, entry_id)
    return outcome


def replay(call: Call, keys: Keys, args: Args) -> Any:
    """Submit a dead letter again, under a new id."""
    dead, ingress = keys
    if not call("XRANGE", dead, args[0], args[0]):
        return 0
    added = call("XADD", ingress, "NOMKSTREAM", "*", *args[1:])
    if added is not None:
        call("XDEL", dead, args[0])
    return added


def heads(call: Call, keys: Keys, args: Args) -> Any:
    """Entries of a stream without what is large in them."""
    command, start, end, count, most, longest = args
    entries = call(command.decode(), keys[0], start, end, "COUNT", count)
    return [[entry_id, _head_of(fields, int(most), int(longest))] for entry_id, fields in entries]


def _head_of(fields: Sequence[bytes], most: int, longest: int) -> list[bytes]:
    head: list[bytes] = []
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    for name, value in pairs[:most]:
        if len(name) <= longest:
            head += (name, b"" if name == b"inputs" or len(value) > longest else value)
    return head


def reread(call: Call, keys: Keys, args: Args) -> Any:
    """Ingress entries that a router has read and not ended, as many as it can hold."""
    router, after, count, each_max, all_max, most, longest = args
    found: list[Any] = []
    size = 0
    pending = call("XPENDING", keys[0], "router", b"(" + after, "+", count, router)
    for entry_id, *_ in pending:
        entries = call("XRANGE", keys[0], entry_id, entry_id)
        fields, too_large = entries[0][1] if entries else None, 0
        if fields is not None and sum(map(len, fields)) > int(each_max):
            fields, too_large = _head_of(fields, int(most), int(longest)), 1
        elif fields is not None and len(fields) > 2 * int(most):
            fields = _head_of(fields, int(most), int(longest))
        size += sum(map(len, fields or ()))
        if found and size > int(all_max):
            break
        found.append([entry_id, fields, too_large])
    return found


_FUNCTIONS: Sequence[ScriptFunction] = (ripe, promote, retry, replay, heads, reread)
LATER_SCRIPTS: Mapping[str, ScriptFunction] = {each.__name__: each for each in _FUNCTIONS}
