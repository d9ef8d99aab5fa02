"""What came of the runs: a table for people, and the sums. Pure."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from .checker import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run's outcome; `broken` says why it could not be played to its end, empty if it was."""

    run: str
    verdict: Verdict
    duration_s: float
    folder: Path
    broken: str = ""

    @property
    def holds(self):
        return self.verdict.holds and not self.broken

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
            "yes" if result.holds else f"NO: {result.fault_text}".replace("[", "\\["),
        )
    return drawn


def summary(results):
    """The last line, and whether all of it holds."""

    def total(kind):
        return sum(len(getattr(result.verdict, kind)) for result in results)

    return {
        "runs": len(results),
        "requests": sum(result.verdict.requests for result in results),
        "lost": total("lost"),
        "duplicate_answers": total("duplicate_answers"),
        "wrong": sum(map(total, ("wrong", "changed", "unexpected", "computed_too_often"))),
        "late": total("late"),
        "failed_runs": sum(not result.holds for result in results),
        "holds": bool(results) and all(result.holds for result in results),
    }
