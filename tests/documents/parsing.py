"""Whether the command line accepts a line, without carrying it out."""

import re
import shlex
from unittest.mock import patch

import click

from batchfleet.ops.cli import main

# What is said about an example stands behind it, after a wider gap.
_REMARK = re.compile(r" {2,}.*$")


def commands(command=main, path=()):
    """Every command that ends a line, with the words that lead to it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))
    yield path, command


def examples_of(command):
    """The lines under `Examples:` in a command's help."""
    _, _, listed = (command.help or "").partition("Examples:\n")
    return [_REMARK.sub("", line.strip()) for line in listed.splitlines() if line.strip()]


def calls_of(line):
    """The arguments of each call of batchfleet in a line, pipes and substitutions included."""
    inner = re.findall(r"\$\((.+?)\)", line)
    outer = re.sub(r"\$\(.+?\)", "SUBSTITUTED", line)
    words = [
        shlex.split(part, comments=True) for text in (outer, *inner) for part in text.split(" | ")
    ]
    return [rest for first, *rest in filter(None, words) if first == "batchfleet"]


def parse(arguments):
    """Read arguments as the command line does, and return the name of the command that they reach.

    Raises:
        click.UsageError: they are not accepted.
    """
    reached = []

    def note(_command, context):
        reached.append(context.info_name)

    # Groups call it for themselves and go on to the command that is named; that one does nothing.
    with patch.object(click.Command, "invoke", note):
        main.main(arguments, "batchfleet", standalone_mode=False)
    return reached[-1]
