"""Commands on dead letters: requests that were given up, kept with their inputs and the reply."""

from collections.abc import Sequence
from typing import Any

from ..wire.keys import ModelKeys
from .commands import Command, as_is, call, plain
from .requests import Entry


def letters(keys: ModelKeys, before: str, count: int) -> Command[list[Entry]]:
    """Dead letters up to entry id `before` (`+` = the newest, `(id` = older), the newest first."""
    parts = ("XREVRANGE", keys.dead, before, "-", "COUNT", count)
    return plain(lambda raw: [(entry[0], entry[1]) for entry in raw], *parts)


def count_letters(keys: ModelKeys) -> Command[int]:
    """How many dead letters a model has."""
    return plain(int, "XLEN", keys.dead)


def remove_letters(keys: ModelKeys, entry_ids: Sequence[bytes]) -> Command[int]:
    """Remove dead letters for good; returns how many were there."""
    return plain(int, "XDEL", keys.dead, *entry_ids)


def replay(
    keys: ModelKeys, tenant: str, entry_id: bytes, fields: Sequence[bytes]
) -> Command[bytes | int | None]:
    """Submit a dead letter as the request that `fields` make, and remove it, in one step.

    Returns the id of the ingress entry; 0 where there is no such letter; None where the model is
    not deployed for the tenant.
    """
    script_keys = [keys.dead, keys.ingress(tenant)]
    read: Any = as_is
    return call("replay", script_keys, [entry_id, *fields], read)
