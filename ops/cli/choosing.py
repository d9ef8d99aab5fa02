"""Options that choose among many requests or letters, and the question before they go."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ...wire.numbers import Range
from ...wire.texts import terminal_text
from .options import BoundedNumber, seconds

tenant_option = click.option("--tenant", help="Only those of this tenant.")
older_than_option = click.option(
    "--older-than",
    type=seconds(0, 10_000_000),
    metavar="SECONDS",
    help="Only those at least this old.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
limit_option = click.option(
    "--limit",
    type=BoundedNumber(Range(1, 1_000_000)),
    default=100,
    show_default=True,
    help="Maximum number to show.",
)


def ask_first(question: str, *, yes: bool) -> None:
    """Go on only if the person at the terminal says so.

    Raises:
        Abort: they say no, or there is nobody to ask.
    """
    if not yes:
        click.confirm(question, abort=True, err=True)


@contextmanager
def counting_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; gives a function that is told how many more are done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(terminal_text(what), total=total)

        def advance(count: int) -> None:
            progress.advance(task, count)

        yield advance
