"""`python -m tests.acceptance NAME …` measures what is promised; without a name, everything.

A capability is a file of this folder with `measure(*, quick) -> list[Promise]`. A table for people,
one line of JSON last; exit code 1 where a promise falls short or was skipped.
"""

import importlib
import sys
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from .measuring.promise import attempt


def capabilities():
    """Names of all capabilities."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(path.stem.replace("_", "-") for path in files if path.stem[0] != "_")


def measure(name, *, quick):
    """The promises of one capability."""
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    return attempt(name, lambda: module.measure(quick=quick))


def table(name, promises):
    drawn = Table(title=f"acceptance: {name}", title_justify="left")
    drawn.add_column("promise", overflow="fold")
    for heading in ("bound", "figure"):
        drawn.add_column(heading, justify="right", overflow="fold")
    drawn.add_column("holds")
    for promise in promises:
        holds = "yes" if promise.holds else "NO"
        drawn.add_row(promise.promise, promise.bound, promise.shown, holds)
    return drawn


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(capabilities()))
@click.option("--quick", is_flag=True, help="A rehearsal: small loads; its figures do not count.")
def main(names, quick):
    """Measure the promised figures of the capabilities NAMES; of all without a name."""
    found = {name: measure(name, quick=quick) for name in names or capabilities()}
    console = Console(width=None if sys.stdout.isatty() else 140)
    for name, promises in found.items():
        console.print(table(name, promises))
    holds = all(promise.holds for promises in found.values() for promise in promises)
    line = {
        "holds": holds,
        "quick": quick,
        "capabilities": {
            name: [promise.to_json() for promise in promises] for name, promises in found.items()
        },
    }
    click.echo(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
