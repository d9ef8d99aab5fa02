"""What a terminal is shown: foreign texts move no cursor, forge no line and hide nothing."""

import json
import re

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from batchfleet.ops.cli._shared.failures import CommandError
from batchfleet.ops.cli._shared.output import (
    complain,
    console,
    json_text,
    make_table,
    print_json,
    print_table,
    say,
    warn,
)
from batchfleet.wire.errors import ErrorKind, RequestError, ServerError, SettingsError, StoreError
from batchfleet.wire.texts import terminal_text

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J",
    "a\rb",
    "a\nerror: forged",
    "\x9b31m",
    "\u202eevil\u202c",
    "\u2066x\u2069\u200e\u200f\u061c",
    "zero\u200bwidth\ufeff\u2060",
    "\u2028line\u2029",
    "tag\U000e0041",
    "\ud800half",
    "\x00\x08\x7f",
)
_UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def printed(act, *, color=False):
    """What a command that acts prints on both streams; `color` as on a terminal."""

    @click.command()
    def command():
        act()

    result = CliRunner().invoke(command, color=color)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def table_of(text):
    def act():
        table = make_table(text, "name", "what")
        table.add_row(text, f"[red]{text}[/red] :smile:")
        print_table(table)

    return act


def fail_with(error):
    def act():
        raise CommandError(error)

    return act


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_way_to_print_lets_a_foreign_text_move_the_terminal(text):
    """X8: lines, warnings, errors, tables, and JSON."""
    ways = {
        "say": lambda: say(text),
        "say on stderr": lambda: say(text, err=True),
        "warn": lambda: warn(text),
        "complain": lambda: complain(text),
        "table": table_of(text),
        "request": fail_with(RequestError.of(ErrorKind.MODEL_ERROR, text)),
        "server": fail_with(ServerError(text)),
        "store": fail_with(StoreError(text)),
        "settings": fail_with(SettingsError(text)),
    }
    for way, act in ways.items():
        output = printed(act)
        assert not _UNSAFE.search(output), (way, output)
        if "\n" in text and way != "settings":
            assert not any(line.startswith("error: forged") for line in output.splitlines()), way


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text], ids=ascii)
def test_json_is_true_and_ascii_where_a_terminal_would_obey(text):
    """X8: it reads back as what it was."""
    output = printed(lambda: print_json({"text": text}))
    assert not _UNSAFE.search(output)
    assert json.loads(output) == {"text": text}


def test_markup_of_a_foreign_text_is_text():
    """X8: `[red]` stays what it is, in tables and lines."""
    output = printed(table_of("x"), color=True)
    assert "[red]x[/red] :smile:" in output


def test_what_people_write_is_shown_as_it_is():
    plain = "naïve 日本語　全角 \u00a0 Ελληνικά عربي 🙂 a\u0301"
    assert terminal_text(plain) == plain
    assert printed(lambda: say(plain, "two")) == f"{plain}\ntwo\n"
    assert json_text({"a": plain}) == json.dumps(
        {"a": plain}, ensure_ascii=False, separators=(",", ":")
    )


@given(st.text(st.characters(), max_size=50))
def test_any_text_is_one_line_that_fits_every_codec(text):
    """X8: a property of every text."""
    shown = terminal_text(text)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown
    assert not _UNSAFE.search(shown)
    assert terminal_text(shown) == shown


def test_a_lone_text_on_the_console_is_as_plain():
    assert console().render_str("[red]x") == Text("[red]x")
