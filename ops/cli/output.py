"""Printing: JSON for scripts, tables for people."""

import sys
from typing import Any

import click
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from .streams import AsciiText

# Where stdout is no terminal, nobody wants a table that is cut to 80 columns.
_WIDTH_ELSEWHERE = 200


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    click.echo(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))


def console() -> Console:
    """A console on stdout; texts are printed as they are, without markup or emoji."""
    terminal = sys.stdout.isatty()
    width = None if terminal else _WIDTH_ELSEWHERE
    return Console(width=width, markup=False, emoji=False, highlight=False)


def make_table(title: str | None, *columns: str) -> Table:
    """A table with these columns; those that start with `>` are aligned to the right."""
    frame = box.ASCII2 if isinstance(sys.stdout, AsciiText) else box.HEAVY_HEAD
    table = Table(title=title, title_justify="left", title_style="bold", box=frame)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="left" if name == column else "right")
    return table


def print_table(table: Table) -> None:
    """Print a table on stdout."""
    console().print(table)
