"""Every number on the command line has a range; what lies outside is wrong usage, by name."""

import click
import pytest
from click.testing import CliRunner

from batchfleet.ops.cli import COMMANDS, main
from batchfleet.ops.cli._shared.options import BoundedNumber

NO_NUMBERS = ["nan", "inf", "-inf", "Infinity", "1e400", "-1e400", "9" * 5000, "1_0", "٣", "", "x"]
# The settings say what is wrong with them themselves, all faults at once.
SETTINGS = {"INTEGER"}


def commands(command=main, path=()):
    """Every command with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    names = COMMANDS if command is main else command.commands
    context = click.Context(command)
    for name in names:
        yield from commands(command.get_command(context, name), (*path, name))


NUMBERS = [
    (*path, option.opts[0])
    for path, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, BoundedNumber)
]


def test_numbers_are_read_in_one_way():
    """A range is there for each: `int` and `float` of click know none, and `nan` passes a range."""
    for path, command in commands():
        for option in command.params:
            if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
                assert f"BATCHFLEET_{option.name.upper()}" in (option.help or ""), path
    assert {words[-1] for words in NUMBERS} == {
        "--timeout", "--delay", "--retries", "--wait", "--limit", "--older-than", "--port",
        "--min-ready", "--drain", "--keep", "--hold", "--min-samples", "--max-errors",
        "--max-p99-ratio", "--max-device-time-ratio",
    }  # fmt: skip


def arguments_of(path):
    """As many words as a command wants beside its options."""
    wanted = {
        "infer": ["m", "hello"], "submit": ["m", "hello"], "result": ["m", "id"], "up": [],
        "dev": ["model.py"],
    }  # fmt: skip
    return wanted.get(path[0], ["m"])


@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
def test_what_is_no_number_in_the_range_is_wrong_usage(words):
    *path, option = words
    (limits,) = (
        one.type.limits
        for found, command in commands()
        if list(found) == path
        for one in command.params
        if option in one.opts
    )
    outside = [str(limits.highest + 1), str(limits.lowest - 1)]
    for text in [*NO_NUMBERS, *outside]:
        told = CliRunner().invoke(main, [*path, *arguments_of(path), f"{option}={text}"])
        assert told.exit_code == 2, (text, told.output, told.exception)
        assert option in told.stderr
        shown = " ".join(told.stderr.replace("│", " ").split())
        assert f"is not {limits.words}." in shown


@pytest.mark.parametrize("text", NO_NUMBERS[:7])
@pytest.mark.parametrize("option", ["--lease-ms", "--workers", "--threads"])
def test_settings_too(option, text):
    told = CliRunner().invoke(main, ["settings", f"{option}={text}"])
    assert told.exit_code == 2, told.output
    assert option in told.stderr


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0", "1000001"])
def test_how_many_texts_to_embed(text):
    told = CliRunner().invoke(main, ["demo", f"--texts={text}"])
    assert told.exit_code == 2, told.output
    assert "a whole number from 1 to 1000000" in " ".join(told.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "text", ['{"t": NaN}', '{"t": 1e400}', '{"t": 18446744073709551616}', '{"a": 1, "a": 2}']
)
def test_parameters_mean_what_they_say_or_are_refused(text):
    told = CliRunner().invoke(main, ["infer", "m", "hello", "--parameters", text])
    assert told.exit_code == 2, told.output
    assert "--parameters" in told.stderr
