"""Which versions share a device process."""

from dataclasses import dataclass

# In place of a version: the process that those share which have ended one, where the worker may
# start no more.
OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitKey:
    """Identifies a unit among those of one worker.

    Attributes:
        environment: name of the environment; empty is the worker's own Python.
        version: model and version that have the process for themselves; empty where all share it
            that behave, `OVERFLOW` where the others do.
    """

    environment: str = ""
    version: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether the process is that of all who behave."""
        return not self.version

    @property
    def loop_name(self) -> str:
        """The name of the unit's thread in events about loops."""
        return " ".join(part for part in ("device", self.environment, self.version) if part)
