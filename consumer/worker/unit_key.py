"""Which versions share a device process, and which have one for themselves. Pure.

A version that comes while others serve is loaded in a process of its own, so that its load keeps
nobody waiting and its crash touches nobody. There it stays; the process ends with it.
"""

from collections.abc import Collection
from dataclasses import dataclass

# In place of a version, where a worker may start no more processes for single ones: the process of
# those that behave, and that of those which have ended one.
OVERFLOW = "overflow"
CULPRITS = "culprits"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitKey:
    """Identifies a unit among those of one worker.

    Attributes:
        environment: name of the environment; empty is the worker's own Python.
        version: model and version that have the process for themselves; empty where all share it
            that were there first, `OVERFLOW` or `CULPRITS` where others do.
    """

    environment: str = ""
    version: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether several that behave may have to do without the process if it is lost."""
        return self.version in ("", OVERFLOW)

    @property
    def is_own(self) -> bool:
        """Whether a single version has the process for itself."""
        return not (self.is_shared or self.version == CULPRITS)

    @property
    def loop_name(self) -> str:
        """The name of the unit's thread in events about loops."""
        return " ".join(part for part in ("device", self.environment, self.version) if part)


def key_beside(environment: str, name: str, serving: Collection[UnitKey]) -> UnitKey:
    """Where a version that behaves is loaded; `serving` are units with versions that have served.

    All that are there from the beginning share one process.
    """
    shared = UnitKey(environment=environment)
    return UnitKey(environment=environment, version=name) if shared in serving else shared


def within(most: int, key: UnitKey, present: Collection[UnitKey], instead: str) -> UnitKey:
    """The key, or the process `instead` where as many versions have one of their own already."""
    own = [one for one in present if one.is_own and one != key]
    if not key.is_own or len(own) < most:
        return key
    return UnitKey(environment=key.environment, version=instead)
