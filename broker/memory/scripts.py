"""The scripts of `broker/lua/` in Python: one function a file, the same keys, arguments and result.

They run the twin's own commands through `call`, in the order in which the Lua does, so that the two
can be read side by side. The headers of the Lua files say what each is for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

from ..commands import Part
from ..errors import RefusedError, refused

Call = Callable[..., Any]
"""`redis.call`: runs one command of the database that the script was called on."""

Keys = Sequence[bytes]
Args = Sequence[bytes]
ScriptFunction = Callable[[Call, Keys, Args], Any]

_OVER = (b"OK", b"DUP", b"REFUSED", b"GONE")
# Entries of one read in `take`: few while their size is not known, more once they proved small.
_FEW, _MANY, _SMALL_BYTES = 16, 64, 16384


def _packed(items: Sequence[bytes]) -> bytes:
    """What `cmsgpack.pack` makes of a list of texts."""
    packed: bytes = msgpack.packb(list(items), use_bin_type=False)
    return packed


def _now_ms(call: Call) -> int:
    seconds, microseconds = call("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


# accept.


class _Accept:
    """One call of `accept`: what its Lua keeps in local variables."""

    def __init__(self, call: Call, keys: Keys, args: Args) -> None:
        self._call = call
        self._ingress, self._due = keys[0], keys[1]
        self._backlog = int(args[0])
        self._refusal_ttl, self._ahead_ms = args[3], int(args[4])
        self._now_ms = _now_ms(call)
        self._lengths: dict[bytes, int] = {}
        self._rung: set[bytes] = set()
        self.open: int = call("ZCARD", self._due)

    def outcome(self, keys: Keys, item: Args, queue: Keys) -> bytes:
        """What becomes of one item; `queue` is its work stream and bell."""
        call, (tombstone, reply) = self._call, keys
        _, member, _, _, refusal, channel, _ = item[:7]
        if call("EXISTS", tombstone):
            return b"DUP"
        if refusal or self.open >= self._backlog:
            if call("ZSCORE", self._due, member) is not None:
                return b"DUP"
            if not refusal:
                return b"BUSY"
            self._refuse(reply, refusal, channel)
            return b"REFUSED"
        opened = self._open_request(item, queue)
        if opened == b"OK":
            call("DEL", reply)
        return opened

    def _refuse(self, reply: bytes, refusal: bytes, channel: bytes) -> None:
        self._call("DEL", reply)
        self._call("RPUSH", reply, refusal)
        self._call("PEXPIRE", reply, self._refusal_ttl)
        self._call("SPUBLISH", channel, _packed([refusal]))

    def _open_request(self, item: Args, queue: Keys) -> bytes:
        call, (stream, bell) = self._call, queue
        entry_id, member, timeout_ms = item[0], item[1], int(item[3])
        entered_ms = int(entry_id.partition(b"-")[0])
        if entered_ms > self._now_ms + self._ahead_ms:
            return b"CLOCK"
        deadline = min(entered_ms, self._now_ms) + timeout_ms
        if deadline <= self._now_ms:
            return b"LATE"
        inputs = item[-1] or self._copied_inputs(entry_id)
        if inputs is None:
            return b"GONE"
        if self._is_full(stream):
            return b"BUSY"
        if call("ZADD", self._due, "NX", deadline, member) == 0:
            return b"DUP"
        if call("XADD", stream, "NOMKSTREAM", "*", *item[7:-3], deadline, "inputs", inputs) is None:
            call("ZREM", self._due, member)
            return b"STALE"
        self._ring(bell)
        self.open += 1
        return b"OK"

    def _copied_inputs(self, entry_id: bytes) -> bytes | None:
        found = self._call("XRANGE", self._ingress, entry_id, entry_id)
        fields = found[0][1] if found else []
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return next((value for name, value in pairs if name == b"inputs"), None)

    def _is_full(self, stream: bytes) -> bool:
        if stream not in self._lengths:
            self._lengths[stream] = self._call("XLEN", stream)
        self._lengths[stream] += 1
        return self._lengths[stream] > 2 * self._backlog

    def _ring(self, bell: bytes) -> None:
        if bell not in self._rung:
            self._rung.add(bell)
            if self._call("LLEN", bell) == 0:
                self._call("RPUSH", bell, "1")


def accept(call: Call, keys: Keys, args: Args) -> Any:
    """Turn ingress entries into open requests, or refuse them."""
    ingress, queues, items = keys[0], int(args[1]), int(args[2])
    work = _Accept(call, keys, args)
    outcomes: list[bytes] = []
    over: list[bytes] = []
    at, key = 5, 2 + 2 * queues
    for _ in range(items):
        end = at + 7 + int(args[at + 6])
        queue = 2 * int(args[at + 2])
        outcome = work.outcome(keys[key : key + 2], args[at:end], keys[queue : queue + 2])
        if outcome in _OVER:
            over.append(args[at])
        outcomes.append(outcome)
        at, key = end, key + 2
    if over:
        call("XACK", ingress, "router", *over)
        call("XDEL", ingress, *over)
    return [work.open, outcomes]


# take.


class _Take:
    """One call of `take`: room and bytes that are left."""

    def __init__(self, call: Call, keys: Keys, args: Args) -> None:
        self._call = call
        self._due = keys[1]
        self._worker = args[0]
        self._room, self._bytes, self._weight_max = int(args[1]), int(args[2]), int(args[3])

    @property
    def has_room(self) -> bool:
        return self._room > 0 and self._bytes > 0

    def read(self, stream: bytes) -> list[Any]:
        """Entries of one stream whose requests are open."""
        kept: list[Any] = []
        step = _FEW
        while self.has_room:
            count, before = min(self._room, step), self._bytes
            try:
                answer = self._call(
                    "XREADGROUP", "GROUP", "worker", self._worker, "COUNT", count,
                    "STREAMS", stream, ">",
                )  # fmt: skip
            except RefusedError:
                # A stream that was just removed (an old bucket, an old version) is passed over.
                break
            if not answer:
                break
            entries = answer[0][1]
            kept += self._sort_out(stream, entries)
            if len(entries) < count:
                break
            if before - self._bytes < count * _SMALL_BYTES:
                step = _MANY
        return kept

    def _sort_out(self, stream: bytes, entries: list[Any]) -> list[Any]:
        """Keep the entries whose request is open; end the others."""
        scores = self._call("ZMSCORE", self._due, *(_member(fields) for _, fields in entries))
        kept, closed = [], []
        for entry, score in zip(entries, scores, strict=True):
            if score is None:
                closed.append(entry[0])
            else:
                self._weigh(entry[1])
                kept.append(entry)
        if closed:
            self._call("XACK", stream, "worker", *closed)
            self._call("XDEL", stream, *closed)
        return kept

    def _weigh(self, fields: list[bytes]) -> None:
        rows = 1
        for name, value in zip(fields[4::2], fields[5::2], strict=True):
            if name == b"rows":
                rows = int(value) if value.isdigit() else 1
            self._bytes -= len(value)
        self._room -= min(rows, self._weight_max)


def _member(fields: list[bytes]) -> bytes:
    """How an entry's request is named in `due`; the router writes id first, tenant second."""
    tenant = fields[3] if len(fields) > 3 else b""
    return tenant + b":" + fields[1]


def take(call: Call, keys: Keys, args: Args) -> Any:
    """Hand waiting entries to a live worker, as many rows as it has room for."""
    if call("ZSCORE", keys[0], args[0]) is None:
        raise refused("FENCED the worker is not among the living")
    work = _Take(call, keys, args)
    taken = []
    for stream in keys[3:]:
        if not work.has_room:
            break
        entries = work.read(stream)
        if entries:
            taken.append([stream, entries])
    if not work.has_room and call("LLEN", keys[2]) == 0:
        call("RPUSH", keys[2], "1")
    return taken


# finish.


def _is_mine(call: Call, stream: bytes, entry_id: bytes, worker: bytes) -> bool:
    try:
        pending = call("XPENDING", stream, "worker", entry_id, entry_id, 1)
    except RefusedError:
        return False
    return bool(pending) and pending[0][1] == worker


def _answer(call: Call, keys: Keys, args: Args, item: Args) -> bool:
    """Write the terminal item of one request; False where somebody was first."""
    due, journal, tombstone, reply = keys
    _, _, member, body, reply_ttl, tombstone_ttl, status, _, _, line = item
    if call("ZREM", due, member) != 1:
        return False
    try:
        is_alone = call("RPUSH", reply, body) == 1
    except RefusedError:
        is_alone = False
    if not is_alone:
        call("DEL", reply)
        call("RPUSH", reply, body)
    call("PEXPIRE", reply, reply_ttl)
    call("SET", tombstone, status, "PX", tombstone_ttl)
    if line:
        call("XADD", journal, "MAXLEN", "~", args[3], "*", "line", line)
    return True


def finish(call: Call, keys: Keys, args: Args) -> Any:
    """End requests. The only writer of terminal replies."""
    worker, streams, items, whole_bytes = args[0], int(args[1]), int(args[2]), int(args[4])
    outcomes: list[bytes] = []
    over: dict[bytes, list[bytes]] = {}
    notes: dict[bytes, list[bytes]] = {}
    for at in range(items):
        item = args[5 + 10 * at : 15 + 10 * at]
        stream = keys[1 + int(item[0])] if int(item[0]) else b""
        if stream and not _is_mine(call, stream, item[1], worker):
            outcomes.append(b"NOT_MINE")
            continue
        first = 2 + streams + 2 * at
        if _answer(call, (*keys[:2], *keys[first : first + 2]), args, item):
            outcomes.append(b"ANSWERED")
            body, channel, request_id = item[3], item[7], item[8]
            notes.setdefault(channel, []).append(body if len(body) <= whole_bytes else request_id)
        else:
            outcomes.append(b"CLOSED")
        if stream:
            over.setdefault(stream, []).append(item[1])
    for stream, entries in over.items():
        call("XACK", stream, "worker", *entries)
        call("XDEL", stream, *entries)
    for channel, some in notes.items():
        call("SPUBLISH", channel, _packed(some))
    return outcomes


def overdue(call: Call, keys: Keys, args: Args) -> Any:
    """Which open requests are past their deadline, by the server's clock."""
    return call("ZRANGEBYSCORE", keys[0], "-inf", _now_ms(call), "LIMIT", 0, args[0])


# The life of workers.


def join(call: Call, keys: Keys, args: Args) -> Any:
    """Enter a new worker among the living."""
    workers, lost, announcement = keys
    if call("ZSCORE", workers, args[0]) is not None or call("SISMEMBER", lost, args[0]):
        return 0
    call("ZADD", workers, 1, args[0])
    _announce(call, announcement, args)
    return 1


def beat(call: Call, keys: Keys, args: Args) -> Any:
    """Say "still here" by moving the worker's counter."""
    counter = call("ZADD", keys[0], "XX", "INCR", 1, args[0])
    if counter is None:
        return 0
    _announce(call, keys[1], args)
    return int(counter)


def _announce(call: Call, announcement: bytes, args: Args) -> None:
    if len(args) > 2:
        call("HSET", announcement, *args[2:])
    call("PEXPIRE", announcement, args[1])


def leave(call: Call, keys: Keys, args: Args) -> Any:
    """A worker goes by its own will."""
    left = call("ZREM", keys[0], args[0])
    if left == 1:
        call("SADD", keys[1], args[0])
    call("DEL", keys[2], keys[3])
    return left


# Deploy records.


def _make_streams(call: Call, streams: Keys, group: str) -> None:
    for stream in streams:
        try:
            call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
        except RefusedError as error:
            if error.code != "BUSYGROUP":
                raise


def deploy(call: Call, keys: Keys, args: Args) -> Any:
    """Make a version the stable one of its model, with its streams and groups."""
    record, tenants = keys[0], int(args[3])
    version: list[Part] = [b"stable", args[0], b"version:" + args[0], args[1]]
    _make_streams(call, keys[2 : 2 + tenants], "router")
    _make_streams(call, keys[2 + tenants :], "worker")
    call("SADD", keys[1], *args[4 : 4 + tenants])
    call("HSETNX", record, "intake", "open")
    call("HSET", record, *version, "nonce", args[2])
    return call("HINCRBY", record, "epoch", 1)


def configure(call: Call, keys: Keys, args: Args) -> Any:
    """Override limits of a deployed model, or take overrides back."""
    record = keys[0]
    if not call("EXISTS", record):
        return 0
    _make_streams(call, keys[1:], "worker")
    for at in range(int(args[1])):
        name, value = b"set:" + args[2 + 2 * at], args[3 + 2 * at]
        if value:
            call("HSET", record, name, value)
        else:
            call("HDEL", record, name)
    call("HSET", record, "nonce", args[0])
    return call("HINCRBY", record, "epoch", 1)


def undeploy(call: Call, keys: Keys, args: Args) -> Any:
    """Take a model out of service."""
    open_requests = call("ZCARD", keys[1])
    if open_requests > 0 and args[0] != b"1":
        return [0, open_requests]
    call("DEL", *keys)
    return [1, open_requests]


_FUNCTIONS: Sequence[ScriptFunction] = (
    accept, take, finish, overdue, join, beat, leave, deploy, configure, undeploy,
)  # fmt: skip
SCRIPTS: Mapping[str, ScriptFunction] = {each.__name__: each for each in _FUNCTIONS}
