"""How long to wait after a try that failed: growing, bounded, and spread by chance. Pure."""

from dataclasses import dataclass
from random import Random

LONGEST_S = 2.0
_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses of one kind of task: from `first_s`, doubled each time, up to `longest_s`."""

    first_s: float = 0.05
    longest_s: float = LONGEST_S

    def delay_s(self, failures: int, chance: Random) -> float:
        """The pause after so many failures in a row (1 or more), half of it left to chance."""
        grown_s = self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        bounded_s: float = min(grown_s, self.longest_s)
        return bounded_s * chance.uniform(0.5, 1.0)
