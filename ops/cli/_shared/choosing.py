"""Options that choose among many requests or letters, and the question before they go."""

import click

from ....wire.numbers import Range
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
    """Ask for confirmation at the terminal.

    Raises:
        Abort: they say no, or there is nobody to ask.
    """
    if not yes:
        click.confirm(question, abort=True, err=True)
