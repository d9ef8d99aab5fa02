"""What each program's Redis user must be allowed to do, and how a program asks whether it is.

The lists are held by a test against what the programs and their scripts send.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..wire.keys import ModelKeys
from .commands import Command, call
from .errors import DeniedError
from .interface import Executor


@dataclass(frozen=True, slots=True)
class Role:
    """A program, and the commands that its user needs on the keys of its namespace."""

    title: str
    commands: tuple[str, ...]


def _role(title: str, commands: str) -> Role:
    return Role(title, tuple(name.replace("|", " ") for name in commands.split()))


ROUTER = _role(
    "router",
    "DEL EVALSHA EXISTS GET HDEL HGET HGETALL HLEN HMGET HSET INFO LLEN MEMORY|USAGE PEXPIRE "
    "RPUSH SADD SCARD SCRIPT|LOAD SET SMEMBERS SPUBLISH SREM STRLEN TIME UNLINK XACK XADD "
    "XAUTOCLAIM XDEL XGROUP|CREATE XGROUP|DELCONSUMER XINFO|CONSUMERS XINFO|GROUPS XLEN XPENDING "
    "XRANGE XREADGROUP XTRIM ZADD ZCARD ZRANGE ZRANGEBYSCORE ZREM ZSCORE",
)
WORKER = _role(
    "worker",
    "BLPOP DEL EVALSHA EXISTS GET GETRANGE HDEL HGET HGETALL HLEN HMGET HSET INFO LLEN "
    "MEMORY|USAGE PEXPIRE PTTL RPUSH SADD SCARD SCRIPT|LOAD SET SISMEMBER SMEMBERS SPUBLISH SREM "
    "TIME UNLINK XACK XADD XCLAIM XDEL XGROUP|DELCONSUMER XLEN XPENDING XRANGE XREADGROUP XTRIM "
    "ZADD ZCARD ZMSCORE ZRANGE ZREM ZSCORE",
)
OPERATOR = _role(
    "operator",
    "DEL EVALSHA EXISTS GET HDEL HGET HGETALL HLEN HMGET HSET HSETNX INFO LPUSH LRANGE LTRIM "
    "MEMORY|USAGE PERSIST PEXPIRE RPUSH SADD SCARD SCRIPT|LOAD SET SMEMBERS SPUBLISH SREM TIME "
    "UNLINK XACK XADD XDEL XGROUP|CREATE XINFO|GROUPS XLEN XPENDING XRANGE XREVRANGE XTRIM ZADD "
    "ZCARD ZMSCORE ZRANGE ZRANGEBYSCORE ZREM ZREMRANGEBYSCORE ZSCORE",
)

# What rq sends, on keys of its own, besides what an operator sends.
RQ = _role(
    "jobs worker",
    "BLMOVE DEL EVALSHA EXEC EXISTS EXPIRE HGET HGETALL HINCRBY HINCRBYFLOAT HSET INFO LREM MULTI "
    "PERSIST RPUSH SADD SMEMBERS SREM UNWATCH WATCH XADD ZADD ZRANGE ZRANGEBYSCORE ZREM "
    "ZREMRANGEBYSCORE",
)

# What none of them should be allowed to do.
ADMINISTRATOR = _role("administrator", "ACL|SETUSER CONFIG|SET FLUSHALL")
SETTINGS_READER = _role("reader of settings", "CONFIG|GET")

# The arguments of a command where they are not a key alone: the server finds the key by them.
_ARGUMENTS = {
    "ACL SETUSER": "any",
    "BLPOP": "{key} 1",
    "CONFIG GET": "save",
    "CONFIG SET": "save any",
    "EVALSHA": "sha 1 {key}",
    "FLUSHALL": "",
    "GETRANGE": "{key} 0 1",
    "HDEL": "{key} a",
    "HGET": "{key} a",
    "HMGET": "{key} a",
    "HSET": "{key} a b",
    "HSETNX": "{key} a b",
    "INFO": "",
    "LPUSH": "{key} a",
    "LRANGE": "{key} 0 0",
    "LTRIM": "{key} 0 1",
    "PEXPIRE": "{key} 1",
    "RPUSH": "{key} a",
    "SADD": "{key} a",
    "SCRIPT LOAD": "source",
    "SET": "{key} a",
    "SISMEMBER": "{key} a",
    "SPUBLISH": "{channel} a",
    "SREM": "{key} a",
    "TIME": "",
    "XACK": "{key} group 0-1",
    "XADD": "{key} * a b",
    "XAUTOCLAIM": "{key} group name 0 0-0",
    "XCLAIM": "{key} group name 0 0-1",
    "XDEL": "{key} 0-1",
    "XGROUP CREATE": "{key} group 0",
    "XGROUP DELCONSUMER": "{key} group name",
    "XINFO CONSUMERS": "{key} group",
    "XPENDING": "{key} group",
    "XRANGE": "{key} - +",
    "XREADGROUP": "GROUP group name STREAMS {key} >",
    "XREVRANGE": "{key} + -",
    "XTRIM": "{key} MAXLEN 1",
    "ZADD": "{key} 1 a",
    "ZMSCORE": "{key} a",
    "ZRANGE": "{key} 0 1",
    "ZRANGEBYSCORE": "{key} 0 1",
    "ZREM": "{key} a",
    "ZREMRANGEBYSCORE": "{key} 0 1",
    "ZSCORE": "{key} a",
}


def missing_rights(role: Role, namespace: str, model: str = "any") -> Command[list[str]]:
    """Which rights of a role the user of this connection lacks, as `XADD on bf:{any}:due`.

    `model` is a model that the program may meet, deployed or not.
    """
    keys = ModelKeys(namespace, model)
    places = {"key": keys.due, "channel": keys.channel("any", "any")}
    asked = {name: _ARGUMENTS.get(name, "{key}").format(**places) for name in role.commands}
    texts = []
    for name, arguments in asked.items():
        places_in = [place for place in places.values() if place in arguments]
        texts.append(" on ".join([name, *places_in]))
    lines = [f"{name} {arguments}" for name, arguments in asked.items()]
    return call("rights", [], lines, lambda raw: [texts[at - 1] for at in raw])


def require_rights(executor: Executor, role: Role, namespace: str, model: str = "any") -> None:
    """Go on where the user of this connection may do what the program is going to do.

    Raises:
        DeniedError: it may not; the text names every right that is missing.
        ServerError: the server did not say.
    """
    missing = executor.run(missing_rights(role, namespace, model))
    if missing:
        raise DeniedError(
            "NOPERM",
            f"NOPERM the Redis user of this {role.title} lacks the right to {_listed(missing)}; "
            "docs/rights.md lists all rights it needs",
        )


_LISTED_MAX = 5


def _listed(missing: Sequence[str]) -> str:
    shown = ", ".join(missing[:_LISTED_MAX])
    more = len(missing) - _LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def acl_of(role: Role, namespace: str) -> list[str]:
    """What stands behind the user's name and password in `ACL SETUSER`."""
    allowed = ["+" + name.lower().replace(" ", "|") for name in role.commands]
    return ["resetkeys", "resetchannels", "-@all", f"~{namespace}:*", f"&{namespace}:*", *allowed]


def acl_of_jobs(namespace: str) -> list[str]:
    """The same for a jobs worker, whose rights on the keys of rq are others."""
    on_rq = " ".join("+" + name.lower() for name in RQ.commands)
    return [*acl_of(OPERATOR, namespace), f"(~rq:* {on_rq})"]
