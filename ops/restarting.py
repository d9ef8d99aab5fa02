"""When a program that died is started again. Pure: the caller brings the times."""

from dataclasses import dataclass

FIRST_DELAY_MS = 500.0
LONGEST_DELAY_MS = 30_000.0
# A program that ran this long was well; its next death starts a new series.
WELL_AFTER_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Series:
    """Deaths in a row, each after less than `WELL_AFTER_MS`."""

    deaths: int = 0

    def after_death(self, ran_ms: float) -> "Series":
        """The series once the program died, `ran_ms` after it was started."""
        return Series(1 if ran_ms >= WELL_AFTER_MS else self.deaths + 1)

    @property
    def delay_ms(self) -> float:
        """How long to wait before the next start: doubled with each death, up to a limit."""
        if self.deaths == 0:
            return 0.0
        doublings = min(self.deaths - 1, 16)
        return min(FIRST_DELAY_MS * (1 << doublings), LONGEST_DELAY_MS)
