"""`python -m tests.mutants`: each deliberate fault must turn at least one test red.

A test that stays green whatever is broken promises nothing. A table for people, one line of JSON
last; exit code 1 where a fault survives, or where its text is no longer there.
"""

import sys
import tempfile
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.runner import Workshop

ROOT = Path(__file__).parents[2]
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())


def chosen(words):
    """The mutants whose names hold one of the words; all without a word."""
    return [one for one in MUTANTS if not words or any(word in one.name for word in words)]


def judged(mutants, console):
    """A verdict for each mutant, once their tests have passed on the tree as it is."""
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Progress(*_COLUMNS, TimeElapsedColumn(), console=console) as progress,
    ):
        task = progress.add_task("the tree as it is", total=len(mutants))
        workshop = Workshop.copied_from(ROOT, Path(folder))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if not workshop.all_pass(tests):
            raise click.ClickException("the tests fail on the tree as it is: mend that first")
        verdicts = []
        for mutant in mutants:
            progress.update(task, description=mutant.name[:48].ljust(48))
            verdicts.append(workshop.judge(mutant))
            progress.advance(task)
        return verdicts


def table(mutants, verdicts):
    drawn = Table(title="deliberate faults", title_justify="left")
    for heading in ("fault", "where", "breaks"):
        drawn.add_column(heading, overflow="fold")
    drawn.add_column("verdict", overflow="fold")
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        shown = "killed" if verdict.killed else f"SURVIVED: {verdict.note}"
        drawn.add_row(mutant.name, mutant.path, mutant.breaks, shown)
    return drawn


@click.command()
@click.argument("words", nargs=-1)
def main(words):
    """Try the faults whose names hold one of WORDS; all of them without a word."""
    mutants = chosen(words)
    if not mutants:
        raise click.UsageError(f"no fault is called like {' or '.join(words)}")
    progress = Console(stderr=True)
    verdicts = judged(mutants, progress)
    Console(width=None if sys.stdout.isatty() else 140).print(table(mutants, verdicts))
    survived = [verdict.name for verdict in verdicts if not verdict.killed]
    line = {"mutants": len(mutants), "killed": len(mutants) - len(survived), "survived": survived}
    click.echo(orjson.dumps(line))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
