"""What a script in Python is called with."""

from collections.abc import Callable, Sequence
from typing import Any

from ..commands import Part
from ..errors import RefusedError, UnusableKeyError, refused

Call = Callable[..., Any]
"""`redis.call`: runs one command of the database that the script was called on."""

Keys = Sequence[bytes]
Args = Sequence[bytes]
ScriptFunction = Callable[[Call, Keys, Args], Any]


def member_of(fields: Sequence[bytes]) -> bytes:
    """How an entry's request is named in `due`; the router writes id first, tenant second."""
    request_id, tenant = (fields[at] if len(fields) > at else b"" for at in (1, 3))
    return tenant + b":" + request_id


PARTS_MAX = 1000
"""Fields and values of an entry; no router writes so many, and Lua could not hand them over."""

_DIGITS_MAX = 15


def whole(text: bytes | None, lowest: int, highest: int, default: int) -> int:
    """A number that somebody else may have written, in its range; `default` where it is none."""
    if text is None or not text.isdigit():
        return default
    number = int(text) if len(text.lstrip(b"0")) <= _DIGITS_MAX else highest
    return max(lowest, min(highest, number))


def next_epoch(call: Call, record: bytes) -> int:
    """Count a change of the deploy record; anew where a foreign hand has written there."""
    known = call("HGET", record, "epoch") or b""
    epoch = 1 + (int(known) if known.isdigit() and len(known) <= _DIGITS_MAX else 0)
    call("HSET", record, "epoch", epoch)
    return epoch


def require_record(call: Call, record: bytes, stamp: Args) -> None:
    """Pass where the deploy record has this epoch and nonce.

    Raises:
        StaleRecordError: it is another by now, or gone.
    """
    try:
        stable, epoch, nonce = call("HMGET", record, "stable", "epoch", "nonce")
    except UnusableKeyError:
        stable = None
    if stable is None or [epoch or b"0", nonce or b""] != list(stamp):
        raise refused("STALE the deploy record is another by now")


def now_ms(call: Call) -> int:
    """The server's clock."""
    seconds, microseconds = call("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def has_added(call: Call, stream: bytes, fields: Sequence[Part]) -> bool:
    """Add an entry to a stream; False where there is none, or something else in its place."""
    try:
        return call("XADD", stream, "NOMKSTREAM", "*", *fields) is not None
    except RefusedError:
        return False


def ring_bell(call: Call, bell: bytes) -> None:
    """Ring a bell that is not rung yet, for a while; a foreign key in its place gives way."""
    try:
        length = call("LLEN", bell)
    except RefusedError:
        call("DEL", bell)
        length = 0
    if length == 0:
        call("RPUSH", bell, "1")
        call("PEXPIRE", bell, 60_000)


def has_parked(call: Call, keys: Keys, at_ms: int, fields: Sequence[Part]) -> bool:
    """Park a body in `parked` until a moment in `later`; False where either is a foreign key."""
    later, parked = keys
    try:
        call("ZCARD", later)
        parked_id = call("XADD", parked, "*", *fields)
    except RefusedError:
        return False
    call("ZADD", later, at_ms, parked_id)
    return True


def parked_entry(call: Call, parked: bytes, parked_id: bytes) -> list[bytes] | None:
    """Fields of what is parked under an id; None where nothing is, or where that is no entry id.

    Raises:
        UnusableKeyError: `parked` is of a foreign kind.
    """
    try:
        entries = call("XRANGE", parked, parked_id, parked_id)
    except UnusableKeyError:
        raise
    except RefusedError:
        return None
    return entries[0][1] if entries else None


def is_mine(call: Call, stream: bytes, entry_id: bytes, worker: bytes) -> bool:
    """Whether a work entry is pending for this worker."""
    try:
        pending = call("XPENDING", stream, "worker", entry_id, entry_id, 1)
    except RefusedError:  # the stream was just removed
        return False
    return bool(pending) and pending[0][1] == worker
