"""Commands on keys, strings, lists, sets, hashes and sorted sets, as far as the contract uses them.

Each takes the database and its arguments and gives the raw answer, as it would be read from a
connection. None waits here; `server.py` tries those that wait again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...broker.errors import refused
from .database import Database, Hash, SortedSet, Status, Text

Args = Sequence[bytes]
Handler = Callable[[Database, Args], Any]


def _whole(text: bytes) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise refused("ERR value is not an integer or out of range") from error


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise refused("ERR value is not a valid float") from error


def _written(score: float) -> bytes:
    """A score as the server writes it."""
    return b"%d" % score if score.is_integer() else repr(score).encode()


def _pairs(args: Args) -> list[tuple[bytes, bytes]]:
    if not args or len(args) % 2:
        raise refused("ERR wrong number of arguments")
    return list(zip(args[::2], args[1::2], strict=True))


def _slice(values: list[bytes], start: bytes, stop: bytes) -> list[bytes]:
    """From `start` to `stop`, both included, negative ones counted from the end."""
    first, last = _whole(start), _whole(stop)
    first = max(0, first + len(values)) if first < 0 else first
    last = last + len(values) if last < 0 else last
    return values[first : last + 1]


# Keys and the server.


def _ping(_: Database, __: Args) -> bytes:
    return Status(b"PONG")


def _echo(_: Database, args: Args) -> bytes:
    return args[0]


def _time(database: Database, _: Args) -> list[bytes]:
    seconds, rest = divmod(database.now_microseconds(), 1_000_000)
    return [b"%d" % seconds, b"%d" % rest]


def _exists(database: Database, args: Args) -> int:
    return sum(database.exists(key) for key in args)


def _delete(database: Database, args: Args) -> int:
    return sum(database.remove(key) for key in args)


def _pexpire(database: Database, args: Args) -> int:
    key, ttl_ms = args[0], _whole(args[1])
    if ttl_ms <= 0:
        return int(database.remove(key))
    return int(database.expire_at(key, database.now_ms() + ttl_ms))


def _persist(database: Database, args: Args) -> int:
    return int(database.persist(args[0]))


def _pttl(database: Database, args: Args) -> int:
    if not database.exists(args[0]):
        return -2
    expires_ms = database.expires_ms(args[0])
    return -1 if expires_ms is None else int(expires_ms - database.now_ms())


def _publish(database: Database, args: Args) -> int:
    database.outbox.append((args[0], args[1]))
    return 0


# Strings.


def _get(database: Database, args: Args) -> bytes | None:
    found = database.find(args[0], Text)
    return None if found is None else bytes(found)


def _set(database: Database, args: Args) -> bytes:
    expires_ms = None
    if len(args) > 2:
        if len(args) != 4 or args[2].upper() != b"PX":
            raise refused("ERR syntax error")
        expires_ms = database.now_ms() + _whole(args[3])
    database.put(args[0], Text(args[1]), expires_ms)
    return Status(b"OK")


def _strlen(database: Database, args: Args) -> int:
    return len(database.find(args[0], Text) or b"")


def _getrange(database: Database, args: Args) -> bytes:
    found = database.find(args[0], Text)
    first, last = _whole(args[1]), _whole(args[2])
    if first < 0 or last < 0:
        raise refused("ERR the twin knows GETRANGE only from the start")
    return b"" if found is None else bytes(found[first : last + 1])


# Lists.


def _rpush(database: Database, args: Args) -> int:
    values: list[bytes] = database.find_or_make(args[0], list)
    values += args[1:]
    return len(values)


def _lpush(database: Database, args: Args) -> int:
    values: list[bytes] = database.find_or_make(args[0], list)
    values[:0] = reversed(args[1:])
    return len(values)


def _ltrim(database: Database, args: Args) -> Status:
    values: list[bytes] = database.find(args[0], list) or []
    values[:] = _slice(values, args[1], args[2])
    database.remove_if_empty(args[0])
    return Status(b"OK")


def _llen(database: Database, args: Args) -> int:
    return len(database.find(args[0], list) or ())


def _lrange(database: Database, args: Args) -> list[bytes]:
    return _slice(database.find(args[0], list) or [], args[1], args[2])


def _lpop(database: Database, args: Args) -> bytes | None:
    values = database.find(args[0], list)
    if not values:
        return None
    first: bytes = values.pop(0)
    database.remove_if_empty(args[0])
    return first


def _blpop(database: Database, args: Args) -> list[bytes] | None:
    for key in args[:-1]:
        value = _lpop(database, [key])
        if value is not None:
            return [key, value]
    return None


def _blmove(database: Database, args: Args) -> bytes | None:
    source, target, take_at, put_at, _ = args
    values = database.find(source, list)
    if not values:
        return None
    database.find(target, list)
    value: bytes = values.pop(0 if take_at.upper() == b"LEFT" else -1)
    # In this order, so that a key that is both keeps its life.
    into: list[bytes] = database.find_or_make(target, list)
    into.insert(0 if put_at.upper() == b"LEFT" else len(into), value)
    database.remove_if_empty(source)
    return value


# Sets.


def _sadd(database: Database, args: Args) -> int:
    members: set[bytes] = database.find_or_make(args[0], set)
    new = set(args[1:]) - members
    members |= new
    return len(new)


def _srem(database: Database, args: Args) -> int:
    members = database.find(args[0], set) or set()
    gone = members & set(args[1:])
    members -= gone
    database.remove_if_empty(args[0])
    return len(gone)


def _scard(database: Database, args: Args) -> int:
    return len(database.find(args[0], set) or ())


def _smembers(database: Database, args: Args) -> list[bytes]:
    return list(database.find(args[0], set) or ())


def _sismember(database: Database, args: Args) -> int:
    return int(args[1] in (database.find(args[0], set) or ()))


# Hashes.


def _hset(database: Database, args: Args) -> int:
    pairs = dict(_pairs(args[1:]))
    found = database.find_or_make(args[0], Hash)
    new = len(pairs.keys() - found.keys())
    found.update(pairs)
    return new


def _hsetnx(database: Database, args: Args) -> int:
    found = database.find_or_make(args[0], Hash)
    if args[1] in found:
        return 0
    found[args[1]] = args[2]
    return 1


def _hdel(database: Database, args: Args) -> int:
    found = database.find(args[0], Hash) or Hash()
    gone = sum(found.pop(name, None) is not None for name in args[1:])
    database.remove_if_empty(args[0])
    return gone


def _hget(database: Database, args: Args) -> bytes | None:
    return (database.find(args[0], Hash) or Hash()).get(args[1])


def _hlen(database: Database, args: Args) -> int:
    return len(database.find(args[0], Hash) or ())


def _hmget(database: Database, args: Args) -> list[bytes | None]:
    found = database.find(args[0], Hash) or Hash()
    return [found.get(name) for name in args[1:]]


def _hexists(database: Database, args: Args) -> int:
    return int(args[1] in (database.find(args[0], Hash) or ()))


def _hgetall(database: Database, args: Args) -> list[bytes]:
    found = database.find(args[0], Hash) or Hash()
    return [part for pair in found.items() for part in pair]


def _hincrby(database: Database, args: Args) -> int:
    found = database.find_or_make(args[0], Hash)
    value = _whole(found.get(args[1], b"0")) + _whole(args[2])
    found[args[1]] = b"%d" % value
    return value


# Sorted sets.


def _zadd(database: Database, args: Args) -> int | bytes | None:
    key, rest = args[0], list(args[1:])
    flags = set()
    while rest and rest[0].upper() in (b"NX", b"XX", b"INCR"):
        flags.add(rest.pop(0).upper())
    pairs = [(_number(score), member) for score, member in _pairs(rest)]
    scores = database.find(key, SortedSet)
    if b"XX" in flags and scores is None:
        return None if b"INCR" in flags else 0
    scores = database.find_or_make(key, SortedSet)
    added = 0
    written: bytes | None = None
    for score, member in pairs:
        known = member in scores
        if (b"NX" in flags and known) or (b"XX" in flags and not known):
            continue
        added += not known
        scores[member] = score + (scores.get(member, 0.0) if b"INCR" in flags else 0.0)
        written = _written(scores[member])
    return written if b"INCR" in flags else added


def _zrem(database: Database, args: Args) -> int:
    scores = database.find(args[0], SortedSet) or SortedSet()
    gone = sum(scores.pop(member, None) is not None for member in args[1:])
    database.remove_if_empty(args[0])
    return gone


def _zcard(database: Database, args: Args) -> int:
    return len(database.find(args[0], SortedSet) or ())


def _zmscore(database: Database, args: Args) -> list[bytes | None]:
    scores = database.find(args[0], SortedSet) or SortedSet()
    return [_written(scores[member]) if member in scores else None for member in args[1:]]


def _zscore(database: Database, args: Args) -> bytes | None:
    return _zmscore(database, args[:2])[0]


def _zrange(database: Database, args: Args) -> list[bytes]:
    scores = database.find(args[0], SortedSet) or SortedSet()
    members = _slice(scores.ranked(), args[1], args[2])
    if [option.upper() for option in args[3:]] == [b"WITHSCORES"]:
        return [part for member in members for part in (member, _written(scores[member]))]
    return members


def _zrangebyscore(database: Database, args: Args) -> list[bytes]:
    found = _scored(database, args).ranked()
    if len(args) == 3:
        return found
    limit, offset, count = args[3:]
    if limit.upper() != b"LIMIT" or _whole(offset):
        raise refused("ERR the twin knows ZRANGEBYSCORE only with LIMIT 0, or without")
    return found[: _whole(count)]


def _zremrangebyscore(database: Database, args: Args) -> int:
    gone = list(_scored(database, args))
    return _zrem(database, [args[0], *gone])


def _scored(database: Database, args: Args) -> SortedSet:
    """The members of a key with scores from one to another, both included."""
    scores = database.find(args[0], SortedSet) or SortedSet()
    lowest, highest = _number(args[1]), _number(args[2])
    return SortedSet(
        (member, score) for member, score in scores.items() if lowest <= score <= highest
    )


DATA_COMMANDS: Mapping[bytes, Handler] = {
    b"PING": _ping,
    b"ECHO": _echo,
    b"TIME": _time,
    b"EXISTS": _exists,
    b"DEL": _delete,
    b"UNLINK": _delete,
    b"PEXPIRE": _pexpire,
    b"PERSIST": _persist,
    b"PTTL": _pttl,
    b"SPUBLISH": _publish,
    b"GET": _get,
    b"SET": _set,
    b"STRLEN": _strlen,
    b"GETRANGE": _getrange,
    b"RPUSH": _rpush,
    b"LPUSH": _lpush,
    b"LTRIM": _ltrim,
    b"LLEN": _llen,
    b"LRANGE": _lrange,
    b"LPOP": _lpop,
    b"BLPOP": _blpop,
    b"BLMOVE": _blmove,
    b"SADD": _sadd,
    b"SREM": _srem,
    b"SCARD": _scard,
    b"SMEMBERS": _smembers,
    b"SISMEMBER": _sismember,
    b"HSET": _hset,
    b"HSETNX": _hsetnx,
    b"HDEL": _hdel,
    b"HGET": _hget,
    b"HMGET": _hmget,
    b"HEXISTS": _hexists,
    b"HLEN": _hlen,
    b"HGETALL": _hgetall,
    b"HINCRBY": _hincrby,
    b"ZADD": _zadd,
    b"ZREM": _zrem,
    b"ZCARD": _zcard,
    b"ZSCORE": _zscore,
    b"ZMSCORE": _zmscore,
    b"ZRANGE": _zrange,
    b"ZRANGEBYSCORE": _zrangebyscore,
    b"ZREMRANGEBYSCORE": _zremrangebyscore,
}
