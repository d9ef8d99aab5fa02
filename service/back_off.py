"""How long to wait after a try that failed: growing, bounded, and spread by chance. Pure."""

from dataclasses import dataclass
from random import Random

LONGEST_S = 2.0
# A process that ran this long was well; its next end starts a new series.
HEALTHY_MS = 60_000.0
_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses of one kind of task: from `first_s`, doubled each time, up to `longest_s`."""

    first_s: float = 0.05
    longest_s: float = LONGEST_S

    def full_s(self, failures: int) -> float:
        """The longest pause after so many failures in a row (1 or more)."""
        return min(self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX), self.longest_s)

    def delay_s(self, failures: int, chance: Random) -> float:
        """The pause after so many failures in a row (1 or more), half of it left to chance."""
        return self.full_s(failures) * chance.uniform(0.5, 1.0)


@dataclass(slots=True)
class Restarts:
    """The pauses between the end of a process and the start of the next one."""

    back_off: BackOff
    failures: int = 0  # in a row, each after less than `HEALTHY_MS`

    def next_s(self, ran_ms: float) -> float:
        """The pause after a process that ended `ran_ms` after its start."""
        self.failures = 1 if ran_ms >= HEALTHY_MS else self.failures + 1
        return self.back_off.full_s(self.failures)
