"""Handing a model over worker by worker, where two copies of it do not fit into memory. Pure.

A worker drops the stable version, and loads the new one once that is gone; all the others serve
meanwhile. The share of requests that the new version gets is that of the workers that serve it.
The last worker keeps the stable version until nothing waits for it any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..wire.announcements import READY, WorkerAnnouncement
from ..wire.canary import Canary, WorkerChoice
from ..wire.deployment import Deployment

# A copy may need more while it is loaded than it holds then.
_MARGIN = 1.1
_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is next: fields of the record to change; none = wait; or all is ready for the switch."""

    fields: Mapping[str, bytes] = field(default_factory=dict)
    is_last: bool = False


def next_move(seen: Deployment, version: str, said: Mapping[str, WorkerAnnouncement]) -> Move:
    """What is next on the way from the stable version to this one.

    Args:
        seen: the deploy record.
        version: which is offered beside the stable one.
        said: worker → what it announces.
    """
    stable = seen.stable
    left = [worker for worker in sorted(said) if seen.loads(stable, worker)]
    dropped = [worker for worker in sorted(said) if worker not in left]
    given = [worker for worker in dropped if seen.loads(version, worker)]
    if any(said[worker].state_of(stable) for worker in dropped):
        return Move()
    if len(given) < len(dropped):
        return Move(fields={f"workers:{version}": WorkerChoice(frozenset(dropped)).to_wire()})
    if any(said[worker].state_of(version) != READY for worker in given):
        return Move()
    if len(left) <= 1:
        return Move(is_last=True)
    choice = WorkerChoice(frozenset([*dropped, left[0]]), excludes=True)
    fields = {f"workers:{stable}": choice.to_wire()}
    if given:
        weight = 100 * len(given) / (len(given) + len(left) - 1)
        fields["canary"] = Canary(version, round(weight, 1), version).to_wire()
    return Move(fields=fields)


def fits_beside(stable: str, said: Mapping[str, WorkerAnnouncement]) -> bool:
    """Whether each machine has room for a second copy a worker like the stable one.

    That is, as far as the workers say what they have: what is not known may fit.
    """
    needed: dict[tuple[str, str], int] = {}
    free: dict[tuple[str, str], int] = {}
    for one in said.values():
        device = one.facts.get("device", "")
        place = (one.facts.get("host", ""), device if device.startswith("cuda") else "")
        copy_bytes = _count(one.versions.get(stable, {}).get("memory_bytes", ""))
        needed[place] = needed.get(place, 0) + (copy_bytes or 0)
        free_bytes = _count(one.facts.get("free_bytes", ""))
        if free_bytes is not None:
            free[place] = min(free_bytes, free.get(place, free_bytes))
    return all(free[place] >= needed[place] * _MARGIN for place in free)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < _DIGITS_MAX else None
