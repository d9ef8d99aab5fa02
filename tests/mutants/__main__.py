"""`python -m tests.mutants`: each deliberate fault must turn at least one test red.

A test that stays green whatever is broken promises nothing. A table for people, one line of JSON
last; exit code 1 where a fault survives, or where its text is no longer there.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.runner import Workshop

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 600
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())


def chosen(words):
    """The mutants whose names hold one of the words; all without a word."""
    return [one for one in MUTANTS if not words or any(word in one.name for word in words)]


def judged(mutants, workers, console):
    """A verdict for each mutant, once their tests have passed on the tree as it is."""
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Progress(*_COLUMNS, TimeElapsedColumn(), console=console) as progress,
        ThreadPoolExecutor(workers) as pool,
    ):
        task = progress.add_task("the tree as it is", total=len(mutants))
        free = SimpleQueue()
        for at in range(workers):
            free.put(Workshop.copied_from(ROOT, Path(folder) / str(at), os.environ))
        check_all_pass(free, mutants)

        def judge(mutant):
            workshop = free.get(timeout=_PATIENCE_S)
            verdict = workshop.judge(mutant)
            free.put(workshop)
            progress.update(task, description=mutant.name[:48].ljust(48), advance=1)
            return verdict

        return list(pool.map(judge, mutants))


def check_all_pass(free, mutants):
    """Without it a test that fails anyway would look as if it had noticed."""
    workshop = free.get(timeout=_PATIENCE_S)
    if not workshop.all_pass(sorted({test for mutant in mutants for test in mutant.tests})):
        raise click.ClickException("the tests fail on the tree as it is: mend that first")
    free.put(workshop)


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
@click.option("--workers", default=2, show_default=True, help="How many are tried side by side.")
def main(words, workers):
    """Try the faults whose names hold one of WORDS; all of them without a word."""
    mutants = chosen(words)
    if not mutants:
        raise click.UsageError(f"no fault is called like {' or '.join(words)}")
    progress = Console(stderr=True)
    verdicts = judged(mutants, workers, progress)
    Console(width=None if sys.stdout.isatty() else 140).print(table(mutants, verdicts))
    survived = [verdict.name for verdict in verdicts if not verdict.killed]
    line = {"mutants": len(mutants), "killed": len(mutants) - len(survived), "survived": survived}
    click.echo(orjson.dumps(line))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
