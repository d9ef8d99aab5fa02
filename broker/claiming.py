"""Taking over ingress entries that a router read and did not finish."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..wire.keys import INGRESS_GROUP
from .commands import Command, plain
from .requests import Entry


class Claimed(NamedTuple):
    """Entries taken over, and where the next look goes on; None once all were looked at."""

    entries: list[Entry]
    after: str | None


def claim_ingress(
    stream: str, router: str, idle_ms: int, count: int, start: str = "0-0"
) -> Command[Claimed]:
    """Take over entries that another router read and did not finish; accept is idempotent.

    One call looks at ten times `count` entries at most; there may be more where none was found.
    """
    parts = ("XAUTOCLAIM", stream, INGRESS_GROUP, router, idle_ms, start, "COUNT", count)
    return plain(_read_claimed, *parts)


def _read_claimed(raw: Sequence[Any]) -> Claimed:
    after = raw[0].decode()
    entries = [(entry[0], entry[1]) for entry in raw[1] if entry]
    return Claimed(entries, None if after == "0-0" else after)
