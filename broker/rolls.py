"""Commands on rolls beside the deploy record: their past, counts of their steps, jobs workers."""

from collections.abc import Sequence
from typing import Any

from ..wire.keys import ModelKeys, jobs_key
from .commands import Command, as_is, as_map, as_names, plain

# Rolls of a model that are kept.
ROLLS_MAX = 50
# Counts of a step that nobody adds to any more.
_COUNTS_TTL_MS = 86_400_000
JOBS_TTL_MS = 10_000


def roll(keys: ModelKeys) -> Command[bytes]:
    """The state of a model's roll as stored; empty where there is none."""
    return plain(lambda raw: raw or b"", "HGET", keys.deploy, "roll")


def record_end(keys: ModelKeys, state: bytes) -> list[Command[Any]]:
    """Add a roll that has ended to the past of its model."""
    return [
        plain(int, "LPUSH", keys.rolls, state),
        plain(as_is, "LTRIM", keys.rolls, 0, ROLLS_MAX - 1),
    ]


def past(keys: ModelKeys) -> Command[list[bytes]]:
    """The last rolls that have ended, the newest first."""
    return plain(list, "LRANGE", keys.rolls, 0, -1)


def counts(keys: ModelKeys) -> Command[dict[str, bytes]]:
    """What was counted at some moments: `<roll>:<step>:<moment>` → both versions' counts."""
    return plain(as_map, "HGETALL", keys.roll_counts)


def keep_counts(
    keys: ModelKeys, moment: str, raw: bytes, forget: Sequence[str]
) -> list[Command[int]]:
    """Keep the counts of a moment, unless somebody else has, and forget earlier ones."""
    commands = [
        plain(int, "HSETNX", keys.roll_counts, moment, raw),
        plain(int, "PEXPIRE", keys.roll_counts, _COUNTS_TTL_MS),
    ]
    return [*commands, plain(int, "HDEL", keys.roll_counts, *forget)] if forget else commands


def announce_jobs(namespace: str, name: str, now_ms: float) -> list[Command[int]]:
    """A jobs worker lives; those not heard of for `JOBS_TTL_MS` are forgotten."""
    key = jobs_key(namespace)
    return [
        plain(int, "ZADD", key, round(now_ms), name),
        plain(int, "ZREMRANGEBYSCORE", key, "-inf", round(now_ms - JOBS_TTL_MS)),
        plain(int, "PEXPIRE", key, JOBS_TTL_MS),
    ]


def jobs_workers(namespace: str, now_ms: float) -> Command[list[str]]:
    """Names of the jobs workers that live."""
    return plain(
        as_names, "ZRANGEBYSCORE", jobs_key(namespace), round(now_ms - JOBS_TTL_MS), "+inf"
    )


def leave_jobs(namespace: str, name: str) -> Command[int]:
    """A jobs worker stops."""
    return plain(int, "ZREM", jobs_key(namespace), name)
