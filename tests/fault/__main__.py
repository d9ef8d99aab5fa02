"""`python -m tests.fault [NAME …]` breaks real fleets on purpose; without a name, in every way.

A NAME is a run or the first words of several. Arenas work side by side, each with a server of its
own. A table for people, one line of JSON last; exit code 1 where anything went wrong.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.support.server import KINDS

from . import callers, connections, healing, model_faults, moments, server_faults
from .arena import PROMISE
from .report import summary, table
from .stages import play_all

FAMILIES = (moments, connections, server_faults, model_faults, callers, healing)


def all_runs():
    return [run for family in FAMILIES for run in family.runs()]


def chosen(names, *, quick):
    """The runs that are asked for.

    Raises:
        click.BadParameter: a name fits none.
    """
    runs = [run for run in all_runs() if run.quick or not quick]
    for name in names:
        if not any(run.name.startswith(name) for run in runs):
            raise click.BadParameter(f"no run begins with {name!r}; --list shows them")
    return [run for run in runs if not names or run.name.startswith(tuple(names))]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--server", type=click.Choice(KINDS), default=KINDS[0], help="On which server.")
@click.option("--quick", is_flag=True, help="The part that every change has to pass.")
@click.option("--arenas", default=2, type=click.IntRange(1, 16), help="How many side by side.")
@click.option("--list", "only_list", is_flag=True, help="Name the runs and do nothing.")
def main(names, server, quick, arenas, only_list):
    """Run the fault matrix, or the runs whose names begin with NAMES."""
    runs = chosen(names, quick=quick)
    if only_list:
        click.echo("\n".join(run.name for run in runs))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(f"{server}: {PROMISE}")
    folder = Path(tempfile.mkdtemp(prefix="batchfleet-fault-"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(f"faults on {server}", total=len(runs))

        def tell(result):
            progress.advance(task)
            if not result.holds or not console.is_terminal:
                said = result.fault_text or f"holds, {result.duration_s:.1f} s"
                progress.console.print(f"{result.run}: {said}", markup=False)

        results = play_all(runs, server, folder, arenas, tell)
    console.print(table(results))
    line = summary(results)
    if line.pop("holds"):
        shutil.rmtree(folder)
        click.echo(orjson.dumps(line))
        return
    for result in results:
        if not result.holds:
            click.echo(f"again: make fault SERVER={server} ONLY={result.run}  ({result.folder})")
    click.echo(orjson.dumps(line))
    sys.exit(1)


if __name__ == "__main__":
    main()
