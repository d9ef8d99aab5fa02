"""Running bursts of several contestants in turn, under equal conditions."""

from collections.abc import Callable, Sequence
from typing import Protocol

from .bursts import Burst, Load

Report = Callable[[str, Burst], None]


class Contestant(Protocol):
    """Something that answers requests; it keeps running, idle, while another has its turn."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    def run(self, load: Load) -> Burst:
        """Run one burst to its end."""


def interleave(
    contestants: Sequence[Contestant], load: Load, rounds: int, report: Report
) -> dict[str, list[Burst]]:
    """Run `rounds` bursts of each contestant, A B A B …; returns them by name, in order.

    One more round goes first and does not count: caches fill, connections open, code gets warm.

    Raises:
        ValueError: nothing to run, or two contestants of one name.
    """
    found: dict[str, list[Burst]] = {contestant.name: [] for contestant in contestants}
    if rounds < 1 or not contestants or len(found) != len(contestants):
        raise ValueError("a contest needs a round, and contestants with names of their own")
    for contestant in contestants:
        contestant.run(load)
    for _ in range(rounds):
        for contestant in contestants:
            burst = contestant.run(load)
            found[contestant.name].append(burst)
            report(contestant.name, burst)
    return found
