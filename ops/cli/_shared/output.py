"""Printing: JSON for scripts, lines and tables for people.

Whatever a command prints goes through here: texts come from callers, models, stores and servers,
and on a terminal an escape sequence clears the screen, a line end forges a line, and a
bidirectional mark turns words around.
"""

import re
import sys
from datetime import UTC, datetime
from typing import Any

import click
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from ....wire.texts import terminal_text
from .streams import AsciiText

# Where stdout is no terminal, nobody wants a table that is cut to 80 columns.
_WIDTH_ELSEWHERE = 200
_JSON_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def say(*lines: str, err: bool = False, dim: bool = False) -> None:
    """Lines on stdout or stderr, with what they must not do to a terminal as escapes."""
    text = "\n".join(terminal_text(line, "\t") for line in lines)
    click.echo(click.style(text, dim=True) if dim else text, err=err)


def warn(text: str) -> None:
    """A warning on stderr, in one line."""
    click.echo(click.style("warning: ", fg="yellow") + terminal_text(text), err=True)


def complain(text: str) -> None:
    """One of several errors, on stderr, in one line."""
    click.echo(click.style("error: ", fg="red") + terminal_text(text), err=True)


def json_text(value: Any) -> str:
    """JSON in one line that a terminal may show; it reads back as the value that it was."""
    return _NOT_PRINTED.sub(_json_escape, orjson.dumps(value, option=_JSON_OPTIONS).decode())


# A superset of what `terminal_text` escapes, as a pattern, since answers may be large.
_NOT_PRINTED = re.compile(
    "[\x7f-\xa0\xad\u0600-\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U00010000-\U0010ffff]"
)


def _json_escape(found: re.Match[str]) -> str:
    if terminal_text(found[0]) == found[0]:
        return found[0]
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    click.echo(json_text(value))


class _SafeTable(Table):
    """A table whose texts cannot do anything to a terminal."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts."""
        shown = (terminal_text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*shown, **options)


def console() -> Console:
    """A console on stdout; texts are printed as they are, without markup or emoji."""
    terminal = sys.stdout.isatty()
    width = None if terminal else _WIDTH_ELSEWHERE
    return Console(width=width, markup=False, emoji=False, highlight=False)


def make_table(title: str | None, *columns: str) -> Table:
    """A table with these columns; those that start with `>` are aligned to the right."""
    frame = box.ASCII2 if isinstance(sys.stdout, AsciiText) else box.HEAVY_HEAD
    name = None if title is None else terminal_text(title)
    table = _SafeTable(title=name, title_justify="left", title_style="bold", box=frame)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="left" if name == column else "right")
    return table


def print_table(table: Table) -> None:
    """Print a table on stdout."""
    console().print(table)


def moment(time_ms: float) -> str:
    """A moment of the server's clock, in words."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
