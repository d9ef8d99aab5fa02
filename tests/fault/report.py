"""What came of the runs: a table for people, and the sums. Pure."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from .checker import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run's outcome.

    Attributes:
        broken: why it did not come to its end; empty if it did.
        is_provoked: what it wanted to break came about. A run that was not provoked tells nothing
            of the product, unless its history has something against it all the same.
    """

    run: str
    verdict: Verdict
    duration_s: float
    folder: Path
    broken: str = ""
    is_provoked: bool = True

    @property
    def holds(self):
        return self.verdict.holds and not self.broken

    @property
    def was_played(self):
        return self.is_provoked or bool(self.verdict.complaints)

    @property
    def fault_text(self):
        """All that is wrong, in one line; a few ids of each kind."""
        said = [self.broken] if self.broken else []
        if self.verdict.meagre:
            said.append(f"{self.verdict.requests} requests, not {self.verdict.requests_min}")
        for kind, ids in self.verdict.complaints.items():
            said.append(f"{kind.replace('_', ' ')}: {len(ids)} ({', '.join(ids[:3])})")
        return "; ".join(said)


def table(results):
    """One row a run."""
    drawn = Table(title="faults", title_justify="left")
    drawn.add_column("run", no_wrap=True)
    for heading in ("requests", "computes", "faults", "forgiven", "s"):
        drawn.add_column(heading, justify="right")
    drawn.add_column("holds", overflow="fold")
    for result in results:
        verdict = result.verdict
        counts = (verdict.requests, verdict.computes, verdict.faults, verdict.forgiven)
        drawn.add_row(
            result.run,
            *map(str, counts),
            f"{result.duration_s:.1f}",
            "yes" if result.holds else f"{_word(result)}: {result.fault_text}".replace("[", "\\["),
        )
    return drawn


def _word(result):
    return "NO" if result.was_played else "NOT PLAYED"


def summary(results):
    """The last line, and whether all of it holds; runs that failed or were not played by name."""

    def total(kind):
        return sum(len(getattr(result.verdict, kind)) for result in results)

    return {
        "runs": len(results),
        "requests": sum(result.verdict.requests for result in results),
        "lost": total("lost"),
        "duplicate_answers": total("duplicate_answers"),
        "wrong": sum(map(total, ("wrong", "changed", "unexpected", "computed_too_often"))),
        "late": total("late"),
        "failed": [one.run for one in results if not one.holds and one.was_played],
        "not_played": [one.run for one in results if not one.holds and not one.was_played],
        "holds": bool(results) and all(result.holds for result in results),
    }
