"""Waiting for a machine with nothing else to do, for a while only."""

from collections.abc import Callable
from dataclasses import dataclass

import psutil

# One burst of a background job may look idle for a moment; it does not twice in a row.
QUIET_IN_A_ROW = 2
QUIET_PERCENT = 15.0
SAMPLES_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Calm:
    """How quiet the machine was before a measurement.

    Attributes:
        is_quiet: False where the measurement goes ahead beside something else.
        busy_percent: use of all cores in the last second, 0 to 100.
        waited_s: how long it took.
    """

    is_quiet: bool
    busy_percent: float
    waited_s: int

    def __str__(self) -> str:
        """One line for people."""
        state = "quiet" if self.is_quiet else "NOT QUIET"
        return f"machine {state}: {self.busy_percent:.0f} % busy after {self.waited_s} s"


def busy_percent() -> float:
    """How busy all cores were over the second that this call takes."""
    percent: float = psutil.cpu_percent(interval=1.0)
    return percent


def wait_until_quiet(
    sample: Callable[[], float] = busy_percent, samples_max: int = SAMPLES_MAX
) -> Calm:
    """Wait until two samples in a row show a quiet machine; give up after `samples_max`.

    `sample` takes a second and returns the percentage of use.
    """
    in_a_row, percent = 0, 100.0
    for taken in range(1, samples_max + 1):
        percent = sample()
        in_a_row = in_a_row + 1 if percent <= QUIET_PERCENT else 0
        if in_a_row == QUIET_IN_A_ROW:
            return Calm(is_quiet=True, busy_percent=percent, waited_s=taken)
    return Calm(is_quiet=False, busy_percent=percent, waited_s=samples_max)
