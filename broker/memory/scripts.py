"""The scripts of `broker/lua/` about requests, in Python; `fleet_scripts.py` has the others.

One function a file, with the same keys, arguments and result.

They run the twin's own commands through `call`, in the order in which the Lua does, so that the two
can be read side by side. The headers of the Lua files say what each is for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from ..commands import Part
from ..errors import RefusedError, refused
from .fleet_scripts import FLEET_SCRIPTS
from .later_scripts import LATER_SCRIPTS
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
    require_record,
    ring_bell,
    whole,
)

_OVER = (b"OK", b"DUP", b"REFUSED", b"GONE")
# Entries of one read in `take`: few while their size is not known, more once they proved small.
_FEW, _MANY, _SMALL_BYTES = 16, 64, 16384


def _packed(items: Sequence[bytes]) -> bytes:
    """What `cmsgpack.pack` makes of a list of texts."""
    packed: bytes = msgpack.packb(list(items), use_bin_type=False)
    return packed


# accept.


class _Accept:
    """One call of `accept`: what its Lua keeps in local variables."""

    def __init__(self, call: Call, keys: Keys, args: Args) -> None:
        self._call = call
        self._ingress, self._due, self._later, self._parked, _, self._ttls = keys[:6]
        self._backlog = int(args[0])
        self._refusal_ttl, self._ahead_ms, self._ttls_kept = args[3], int(args[4]), args[7]
        call("XLEN", self._ingress)  # before anything is written: it may be of a foreign kind
        self._now_ms = now_ms(call)
        self._lengths: dict[bytes, int] = {}
        self._rung: set[bytes] = set()
        self.open: int = call("ZCARD", self._due)

    def outcome(self, keys: Keys, item: Args, queue: Keys) -> bytes:
        """What becomes of one item; `queue` is its work stream and bell."""
        call, (tombstone, reply) = self._call, keys
        _, member, _, _, refusal, channel = item[:6]
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
        start_ms = min(entered_ms, self._now_ms) + int(item[6])
        deadline = start_ms + timeout_ms
        if deadline <= self._now_ms:
            return b"LATE"
        inputs = item[-1] or self._copied_inputs(entry_id)
        if inputs is None:
            return b"GONE"
        fault = self._fault_of(self._parked if start_ms > self._now_ms else stream)
        if fault:
            return fault
        if call("ZADD", self._due, "NX", deadline, member) == 0:
            return b"DUP"
        fields: list[Part] = [*item[9:-3], deadline, item[-2], inputs]
        if start_ms > self._now_ms:
            body = ("queue", stream, "bell", bell, *fields)
            parks = (self._later, self._parked)
            placed = call("EXISTS", stream) and has_parked(call, parks, start_ms, body)
        else:
            placed = has_added(call, stream, fields)
        if not placed:
            call("ZREM", self._due, member)
            return b"STALE"
        if start_ms <= self._now_ms:
            self._ring(bell)
        if item[7] != b"0":
            self._remember_ttl(member, item[7])
        self.open += 1
        return b"OK"

    def _remember_ttl(self, member: bytes, ttl_ms: bytes) -> None:
        call, ttls = self._call, self._ttls
        if self.open == 0:
            call("DEL", ttls)
        try:
            call("HSET", ttls, member, ttl_ms)
        except RefusedError:  # a foreign key gives way
            call("DEL", ttls)
            call("HSET", ttls, member, ttl_ms)
        call("PEXPIRE", ttls, self._ttls_kept)

    def _copied_inputs(self, entry_id: bytes) -> bytes | None:
        found = self._call("XRANGE", self._ingress, entry_id, entry_id)
        fields = found[0][1] if found else []
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return next((value for name, value in pairs if name == b"inputs"), None)

    def _fault_of(self, stream: bytes) -> bytes:
        if stream not in self._lengths:
            try:
                self._lengths[stream] = self._call("XLEN", stream)
            except RefusedError:
                return b"STALE"
        self._lengths[stream] += 1
        return b"BUSY" if self._lengths[stream] > 2 * self._backlog else b""

    def _ring(self, bell: bytes) -> None:
        if bell not in self._rung:
            self._rung.add(bell)
            ring_bell(self._call, bell)


def accept(call: Call, keys: Keys, args: Args) -> Any:
    """Turn ingress entries into open requests, or refuse them."""
    ingress, queues, items = keys[0], int(args[1]), int(args[2])
    require_record(call, keys[4], args[5:7])
    work = _Accept(call, keys, args)
    outcomes: list[bytes] = []
    over: list[bytes] = []
    at, key = 8, 6 + 2 * queues
    for _ in range(items):
        end = at + 9 + int(args[at + 8])
        queue = 4 + 2 * int(args[at + 2])
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
        self._bytes_max = self._bytes
        call("ZCARD", self._due)  # before anything is read: it may be of a foreign kind

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
        scores = self._call("ZMSCORE", self._due, *(member_of(fields) for _, fields in entries))
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
                rows = whole(value, 1, self._weight_max, 1)
            if name == b"inputs_bytes":
                self._bytes -= whole(value, 0, self._bytes_max, 0)
            self._bytes -= len(value)
        self._room -= rows


def take(call: Call, keys: Keys, args: Args) -> Any:
    """Hand waiting entries to a live worker, as many rows as it has room for."""
    if call("ZSCORE", keys[0], args[0]) is None:
        raise refused("FENCED the worker is not among the living")
    require_record(call, keys[3], args[4:6])
    work = _Take(call, keys, args)
    taken = []
    for stream in keys[4:]:
        if not work.has_room:
            break
        entries = work.read(stream)
        if entries:
            taken.append([stream, entries])
    if not work.has_room:
        ring_bell(call, keys[2])
    return taken


# finish.


Blob = tuple[bytes, bytes, bytes]
"""Key, content (empty = remove it), and time to live in ms."""


def _blobs_of(keys: Keys, args: Args, items: int, streams: int) -> dict[int, list[Blob]]:
    """The blobs of each item, by its number, which counts from one."""
    found: dict[int, list[Blob]] = {}
    at = 9 + 11 * items
    for key in keys[4 + streams + 2 * items :]:
        number, content, ttl_ms = args[at : at + 3]
        found.setdefault(int(number), []).append((key, content, ttl_ms))
        at += 3
    return found


def _keep_blobs(call: Call, blobs: Sequence[Blob]) -> None:
    for key, content, ttl_ms in blobs:
        if content:
            call("SET", key, content, "PX", ttl_ms)
        else:
            call("UNLINK", key)


def _text_at(call: Call, key: bytes) -> bytes | None:
    try:
        found: bytes | None = call("GET", key)
    except RefusedError:  # a foreign key
        return None
    return found


@dataclass(frozen=True, slots=True)
class _Finish:
    """One call of `finish`: what its Lua keeps in local variables."""

    call: Call
    keys: Keys
    args: Args

    def letter_is_written(self, item: Args, stream: bytes, blobs: Sequence[Blob]) -> bool:
        """Keep an entry among the dead letters, with inputs that lie in a blob."""
        call, dead = self.call, self.keys[2]
        entries = call("XRANGE", stream, item[1], item[1])
        letter = list(entries[0][1]) if entries else []
        for at in range(0, len(letter), 2):
            if letter[at] == b"inputs_at" and letter[at + 1] == b"blob":
                inputs = _text_at(call, blobs[0][0]) if blobs else None
                if inputs is not None:
                    letter[at : at + 2] = b"inputs", inputs
        if len(letter) > PARTS_MAX:
            letter = letter[:4]
        letter += [b"stream", stream, b"reply", item[3]]
        try:
            call("XADD", dead, "MAXLEN", "~", self.args[5], "*", *letter)
        except RefusedError:
            return False
        while call("MEMORY", "USAGE", dead) > int(self.args[6]) and call("XLEN", dead) > 1:
            call("XTRIM", dead, "MAXLEN", int(call("XLEN", dead) * 0.9))
        return True

    def answer(self, keys: Keys, item: Args, stream: bytes, blobs: Sequence[Blob]) -> bytes:
        """Write the terminal item of one request, unless somebody was first."""
        call, due = self.call, self.keys[0]
        tombstone, reply = keys
        _, _, member, body, default_ttl, tombstone_ttl, status, _, _, line, is_dead = item
        left_ms = 0 if stream else self._until_deadline_ms(member)
        is_given_up = stream and is_dead == b"1" and call("ZSCORE", due, member) is not None
        if is_given_up and not self.letter_is_written(item, stream, blobs):
            return b"KEPT"
        if call("ZREM", due, member) != 1:
            return b"CLOSED"
        ttl_ms = self._ttl_of(member, int(default_ttl))
        _keep_blobs(call, blobs)
        try:
            is_alone = call("RPUSH", reply, body) == 1
        except RefusedError:
            is_alone = False
        if not is_alone:
            call("DEL", reply)
            call("RPUSH", reply, body)
        call("PEXPIRE", reply, ttl_ms)
        remembered_ms = int(tombstone_ttl) - int(default_ttl) + ttl_ms + left_ms
        call("SET", tombstone, status, "PX", remembered_ms)
        if line:
            self._write_journal(line)
        return b"ANSWERED"

    def _ttl_of(self, member: bytes, default_ms: int) -> int:
        """How long a reply is kept: as its caller asked, however the request ends."""
        ttls = self.keys[3]
        try:
            if not self.call("HLEN", ttls):
                return default_ms
        except RefusedError:  # a foreign key
            return default_ms
        ttl_ms = whole(self.call("HGET", ttls, member), 1, int(self.args[7]), default_ms)
        self.call("HDEL", ttls, member)
        return ttl_ms

    def _write_journal(self, line: bytes) -> None:
        journal = self.keys[1]
        for _ in range(2):
            try:
                self.call("XADD", journal, "MAXLEN", "~", self.args[3], "*", "line", line)
            except RefusedError:  # a foreign key, or ids that are used up: it is begun anew
                self.call("DEL", journal)
            else:
                return

    def _until_deadline_ms(self, member: bytes) -> int:
        deadline = self.call("ZSCORE", self.keys[0], member)
        seconds = int(self.call("TIME")[0])
        if deadline is None:
            return 0
        return int(max(0, min(float(deadline) - 1000 * seconds, int(self.args[8]))))


def finish(call: Call, keys: Keys, args: Args) -> Any:
    """End requests. The only writer of terminal replies."""
    worker, streams, items, whole_bytes = args[0], int(args[1]), int(args[2]), int(args[4])
    work = _Finish(call, keys, args)
    call("ZCARD", keys[0])  # before anything is written: it may be of a foreign kind
    outcomes: list[bytes] = []
    over: dict[bytes, list[bytes]] = {}
    notes: dict[bytes, list[bytes]] = {}
    blobs = _blobs_of(keys, args, items, streams)
    for at in range(items):
        item = args[9 + 11 * at : 20 + 11 * at]
        stream = keys[3 + int(item[0])] if int(item[0]) else b""
        if stream and not is_mine(call, stream, item[1], worker):
            outcomes.append(b"NOT_MINE")
            continue
        first = 4 + streams + 2 * at
        outcome = work.answer(keys[first : first + 2], item, stream, blobs.get(at + 1, ()))
        outcomes.append(outcome)
        if outcome == b"ANSWERED":
            body, channel, request_id = item[3], item[7], item[8]
            notes.setdefault(channel, []).append(body if len(body) <= whole_bytes else request_id)
        if stream and outcome != b"KEPT":
            over.setdefault(stream, []).append(item[1])
    for stream, entries in over.items():
        call("XACK", stream, "worker", *entries)
        call("XDEL", stream, *entries)
    for channel, some in notes.items():
        call("SPUBLISH", channel, _packed(some))
    return outcomes


def overdue(call: Call, keys: Keys, args: Args) -> Any:
    """Which open requests are past their deadline, by the server's clock."""
    return call("ZRANGEBYSCORE", keys[0], "-inf", now_ms(call), "LIMIT", 0, args[0])


_FUNCTIONS: Sequence[ScriptFunction] = (accept, take, finish, overdue)
SCRIPTS: Mapping[str, ScriptFunction] = {
    **{each.__name__: each for each in _FUNCTIONS},
    **LATER_SCRIPTS,
    **FLEET_SCRIPTS,
}
