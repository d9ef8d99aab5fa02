"""Commands on streams and their groups, as far as the contract uses them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...broker.errors import refused
from .data_commands import Args, Handler
from .database import Database, Status
from .streams import HIGHEST, LOWEST, EntryId, Group, Pending, Stream, read_id

Answer = list[Any]

_SEQUENCE_MAX = HIGHEST.sequence
# XAUTOCLAIM looks at this many pending entries for each that it may hand over.
_SCAN_FACTOR = 10
_NEW = b">"


def _options(args: Args, names: Mapping[bytes, int]) -> tuple[dict[bytes, Args], Args]:
    """Options at the start of `args` (name → how many values it has), and the rest."""
    found: dict[bytes, Args] = {}
    at = 0
    while at < len(args) and (name := args[at].upper()) in names:
        found[name] = args[at + 1 : at + 1 + names[name]]
        at += 1 + names[name]
    return found, args[at:]


def _group(database: Database, key: bytes, name: bytes) -> tuple[Stream, Group]:
    stream = database.find(key, Stream)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        shown = f"{key.decode(errors='replace')}' or consumer group '{name.decode()}"
        raise refused(f"NOGROUP No such key '{shown}'")
    return stream, group


def _entry(stream: Stream, entry_id: EntryId) -> Answer:
    fields = stream.get(entry_id)
    return [bytes(entry_id), None if fields is None else list(fields)]


def _xadd(database: Database, args: Args) -> bytes | None:
    key = args[0]
    options, rest = _options(args[1:], {b"NOMKSTREAM": 0, b"MAXLEN": 2})
    fields = list(rest[1:])
    if not fields or len(fields) % 2:
        raise refused("ERR wrong number of arguments for 'xadd' command")
    stream = database.find(key, Stream)
    if stream is None:
        if b"NOMKSTREAM" in options:
            return None
        stream = database.find_or_make(key, Stream)
    entry_id = stream.next_id(database.now_ms()) if rest[0] == b"*" else read_id(rest[0])
    stream.add(entry_id, fields)
    if b"MAXLEN" in options:
        kind, length = options[b"MAXLEN"]
        stream.trim(int(length), approximately=kind == b"~")
    return bytes(entry_id)


def _xlen(database: Database, args: Args) -> int:
    stream = database.find(args[0], Stream)
    return 0 if stream is None else len(stream)


def _bound(text: bytes, *, is_end: bool) -> EntryId:
    if text in (b"-", b"+"):
        return LOWEST if text == b"-" else HIGHEST
    if text.startswith(b"("):
        if is_end:
            raise refused("ERR the twin knows open bounds only at the start")
        return read_id(text[1:]).next()
    return read_id(text, _SEQUENCE_MAX if is_end else 0)


def _xrange(database: Database, args: Args) -> Answer:
    first, last = _bound(args[1], is_end=False), _bound(args[2], is_end=True)
    options, _ = _options(args[3:], {b"COUNT": 1})
    count = int(options[b"COUNT"][0]) if b"COUNT" in options else None
    stream = database.find(args[0], Stream)
    if stream is None:
        return []
    return [_entry(stream, entry_id) for entry_id in stream.between(first, last)[:count]]


def _xrevrange(database: Database, args: Args) -> Answer:
    end = args[1]
    newest = [args[0], b"-", b"+" if end.startswith(b"(") else end]
    found: Answer = _xrange(database, newest)[::-1]
    options, _ = _options(args[3:], {b"COUNT": 1})
    if end.startswith(b"("):
        found = [entry for entry in found if read_id(entry[0]) < read_id(end[1:])]
    return found[: int(options[b"COUNT"][0])] if b"COUNT" in options else found


def _xtrim(database: Database, args: Args) -> int:
    key, strategy, threshold = args
    stream = database.find(key, Stream)
    if stream is None:
        return 0
    if strategy.upper() == b"MINID":
        first = read_id(threshold)
        older = [entry_id for entry_id in stream.between(LOWEST, first) if entry_id != first]
        return sum(stream.delete(entry_id) for entry_id in older)
    before = len(stream)
    stream.trim(int(threshold), approximately=False)
    return before - len(stream)


def _memory(database: Database, args: Args) -> int | None:
    """Of a stream: bytes of its entries, without what a server adds to them."""
    stream = database.find(args[1], Stream)
    if stream is None:
        return None
    entries = (stream.get(entry_id) or () for entry_id in stream.between(LOWEST, HIGHEST))
    return sum(len(part) for fields in entries for part in fields)


def _xinfo(database: Database, args: Args) -> Answer:
    stream = database.find(args[1], Stream)
    if stream is None:
        raise refused("ERR no such key")
    if args[0].upper() == b"GROUPS":
        return [
            [b"name", name, b"last-delivered-id", bytes(stream.groups[name].last)]
            for name in sorted(stream.groups)
        ]
    _, group = _group(database, args[1], args[2])
    now_ms = database.now_ms()
    pending = {name: len(list(group.pending_from(LOWEST, name))) for name in group.seen_ms}
    return [
        [b"name", name, b"pending", pending[name], b"idle", now_ms - group.seen_ms[name]]
        for name in sorted(group.seen_ms)
    ]


def _xdel(database: Database, args: Args) -> int:
    ids = [read_id(text) for text in args[1:]]
    stream = database.find(args[0], Stream)
    return 0 if stream is None else sum(stream.delete(entry_id) for entry_id in ids)


def _xack(database: Database, args: Args) -> int:
    ids = [read_id(text) for text in args[2:]]
    stream = database.find(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if group is None:
        return 0
    return sum(group.pending.pop(entry_id, None) is not None for entry_id in ids)


def _xgroup(database: Database, args: Args) -> bytes | int:
    if args[0].upper() == b"DELCONSUMER":
        return _delete_consumer(database, args)
    if args[0].upper() != b"CREATE":
        raise refused("ERR the twin knows XGROUP only with CREATE and DELCONSUMER")
    _, key, name, start, *flags = args
    stream = database.find(key, Stream)
    if stream is None:
        if [flag.upper() for flag in flags] != [b"MKSTREAM"]:
            raise refused("ERR The XGROUP subcommand requires the key to exist")
        stream = database.find_or_make(key, Stream)
    if name in stream.groups:
        raise refused("BUSYGROUP Consumer Group name already exists")
    stream.groups[name] = Group(stream.last if start == b"$" else read_id(start))
    return Status(b"OK")


def _delete_consumer(database: Database, args: Args) -> int:
    """Throws away what is pending for a consumer, as the server does; returns how much."""
    _, group = _group(database, args[1], args[2])
    group.seen_ms.pop(args[3], None)
    gone = list(group.pending_from(LOWEST, args[3]))
    for entry_id in gone:
        del group.pending[entry_id]
    return len(gone)


def _xreadgroup(database: Database, args: Args) -> Answer | None:
    options, streams = _options(
        args, {b"GROUP": 2, b"COUNT": 1, b"BLOCK": 1, b"NOACK": 0, b"STREAMS": 0}
    )
    if b"NOACK" in options or b"STREAMS" not in options or len(streams) % 2:
        raise refused("ERR syntax error")
    name, consumer = options[b"GROUP"]
    count = int(options[b"COUNT"][0]) if b"COUNT" in options else None
    half = len(streams) // 2
    # All are looked up first: one that is missing spoils the call and hands out nothing.
    found = [(*_group(database, key, name), key) for key in streams[:half]]
    answer: Answer = []
    for (stream, group, key), after in zip(found, streams[half:], strict=True):
        group.seen_ms[consumer] = database.now_ms()
        if after == _NEW:
            entries = _read_new(database, stream, group, consumer, count)
            if entries:
                answer.append([key, entries])
        else:
            start = read_id(after).next()
            answer.append([key, _read_again(database, stream, group, (consumer, start), count)])
    return answer or None


def _read_new(
    database: Database, stream: Stream, group: Group, consumer: bytes, count: int | None
) -> Answer:
    ids = stream.after(group.last)[:count]
    for entry_id in ids:
        group.pending[entry_id] = Pending(consumer, database.now_ms())
        group.last = entry_id
    return [_entry(stream, entry_id) for entry_id in ids]


def _read_again(
    database: Database,
    stream: Stream,
    group: Group,
    whose: tuple[bytes, EntryId],
    count: int | None,
) -> Answer:
    consumer, start = whose
    ids = list(group.pending_from(start, consumer))[:count]
    for entry_id in ids:
        if stream.get(entry_id) is not None:
            group.pending[entry_id].delivered_ms = database.now_ms()
            group.pending[entry_id].deliveries += 1
    return [_entry(stream, entry_id) for entry_id in ids]


def _xautoclaim(database: Database, args: Args) -> Answer:
    key, name, consumer, idle_ms, start = args[:5]
    options, _ = _options(args[5:], {b"COUNT": 1, b"JUSTID": 0})
    if b"JUSTID" not in options:
        raise refused("ERR the twin knows XAUTOCLAIM only as it is used")
    count = int(options[b"COUNT"][0]) if b"COUNT" in options else 100
    stream, group = _group(database, key, name)
    now_ms = group.seen_ms[consumer] = database.now_ms()
    claimed: list[bytes] = []
    deleted: list[bytes] = []
    waiting = list(group.pending_from(read_id(start)))
    looked = 0
    for entry_id in waiting[: count * _SCAN_FACTOR]:
        if len(claimed) + len(deleted) >= count:
            break
        looked += 1
        held = group.pending[entry_id]
        if stream.get(entry_id) is None:
            del group.pending[entry_id]
            deleted.append(bytes(entry_id))
        elif now_ms - held.delivered_ms >= int(idle_ms):
            group.pending[entry_id] = Pending(consumer, now_ms, held.deliveries)
            claimed.append(bytes(entry_id))
    cursor = bytes(waiting[looked]) if looked < len(waiting) else bytes(LOWEST)
    return [cursor, claimed, deleted]


def _xclaim(database: Database, args: Args) -> Answer:
    """Of one entry, whoever has it and however long: so `recover` calls it."""
    key, name, consumer, idle_ms, text = args[:5]
    options, _ = _options(args[5:], {b"RETRYCOUNT": 1, b"JUSTID": 0})
    if int(idle_ms) or options.keys() != {b"RETRYCOUNT", b"JUSTID"}:
        raise refused("ERR the twin knows XCLAIM only as it is used")
    stream, group = _group(database, key, name)
    entry_id = read_id(text)
    if entry_id not in group.pending:
        return []
    if stream.get(entry_id) is None:
        del group.pending[entry_id]
        return []
    group.seen_ms[consumer] = database.now_ms()
    deliveries = int(options[b"RETRYCOUNT"][0])
    group.pending[entry_id] = Pending(consumer, database.now_ms(), deliveries)
    return [bytes(entry_id)]


def _xpending(database: Database, args: Args) -> Answer:
    _, group = _group(database, args[0], args[1])
    if len(args) == 2:
        return _summary(group)
    first, last = _bound(args[2], is_end=False), _bound(args[3], is_end=True)
    consumer = args[5] if len(args) > 5 else None
    ids = [entry_id for entry_id in group.pending_from(first, consumer) if entry_id <= last]
    return [_pending(database, group, entry_id) for entry_id in ids[: int(args[4])]]


def _pending(database: Database, group: Group, entry_id: EntryId) -> Answer:
    held = group.pending[entry_id]
    idle_ms = database.now_ms() - held.delivered_ms
    return [bytes(entry_id), held.consumer, idle_ms, held.deliveries]


def _summary(group: Group) -> Answer:
    if not group.pending:
        return [0, None, None, None]
    counts: dict[bytes, int] = {}
    for held in group.pending.values():
        counts[held.consumer] = counts.get(held.consumer, 0) + 1
    consumers = [[name, b"%d" % count] for name, count in sorted(counts.items())]
    ids = sorted(group.pending)
    return [len(ids), bytes(ids[0]), bytes(ids[-1]), consumers]


STREAM_COMMANDS: Mapping[bytes, Handler] = {
    b"XADD": _xadd,
    b"XLEN": _xlen,
    b"XRANGE": _xrange,
    b"XREVRANGE": _xrevrange,
    b"XTRIM": _xtrim,
    b"XINFO": _xinfo,
    b"MEMORY": _memory,
    b"XDEL": _xdel,
    b"XACK": _xack,
    b"XGROUP": _xgroup,
    b"XREADGROUP": _xreadgroup,
    b"XAUTOCLAIM": _xautoclaim,
    b"XCLAIM": _xclaim,
    b"XPENDING": _xpending,
}


def block_ms(name: bytes, args: Sequence[bytes]) -> float | None:
    """How long a command may wait (0 = for ever); None where it does not wait."""
    if name in (b"BLPOP", b"BLMOVE"):
        return float(args[-1]) * 1000
    if name == b"XREADGROUP":
        options, _ = _options(args, {b"GROUP": 2, b"COUNT": 1, b"BLOCK": 1})
        return float(options[b"BLOCK"][0]) if b"BLOCK" in options else None
    return None
