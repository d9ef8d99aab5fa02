"""Whether the command line accepts a line, without carrying it out."""

import re
import shlex

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
    """Read arguments down to the command that they name, and return that command's name.

    Raises:
        click.UsageError: the command line does not accept them.
    """
    command, name, rest = main, "batchfleet", list(arguments)
    parent = None
    while isinstance(command, click.Group):
        parent = click.Context(command, parent=parent, info_name=name)
        if not rest:
            parent.fail("a command is missing")
        name, command, rest = command.resolve_command(parent, rest)
    with command.make_context(name, rest, parent=parent):
        return name
