"""Commands on dead letters: requests that were given up, kept with their inputs and the reply."""

from collections.abc import Sequence
from typing import Any

from ..wire.keys import ModelKeys
from .commands import Command, as_is, call, plain
from .requests import Entry, read_entries


def letter(keys: ModelKeys, entry_id: bytes) -> Command[list[Entry]]:
    """One dead letter with its inputs; empty where it is gone."""
    return plain(read_entries, "XRANGE", keys.dead, entry_id, entry_id)


def count_letters(keys: ModelKeys) -> Command[int]:
    """How many dead letters a model has."""
    return plain(int, "XLEN", keys.dead)


def trim_letters(keys: ModelKeys, before_ms: int) -> Command[int]:
    """Remove dead letters written before a server time for good; returns how many."""
    return plain(int, "XTRIM", keys.dead, "MINID", before_ms)


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
