"""Options about a version that is made from a `model.py`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ....models.drafting import DraftError, PublishOptions
from ...model_limits import parse_overrides

Command = Callable[..., Any]

_EXISTING = click.Path(exists=True, path_type=Path)
_EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def content_options(command: Command) -> Command:
    """Give a command the options for what a version holds and how it is limited."""
    options = (
        click.option(
            "--limit",
            "limits",
            metavar="KEY=VALUE",
            multiple=True,
            help="Set a limit in the manifest; repeatable.",
        ),
        click.option(
            "--file",
            "extras",
            type=_EXISTING,
            multiple=True,
            help="Add a file or folder to the version; repeatable.",
        ),
    )
    return _decorate(command, options)


def publish_options(command: Command) -> Command:
    """Give a command all of them: those of `content_options`, names, and the environment."""
    options = (
        click.option("--name", "model", default="", help="Name of the model."),
        click.option("--version", "version", default="", help="Name of the version."),
        click.option(
            "--requirements",
            type=_EXISTING_FILE,
            help="Lock file with hashes; the version runs in an environment built from it.",
        ),
        click.option(
            "--environment",
            default="",
            metavar="PATH",
            help="Path of a virtual environment that exists on every worker.",
        ),
    )
    return _decorate(content_options(command), options)


def _decorate(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def split_class(source: str) -> tuple[Path, str]:
    """`FILE.py:CLASS` or `FILE.py` as typed.

    Raises:
        DraftError: there is no such file.
    """
    file, _, class_name = source.rpartition(":") if ".py:" in source else (source, "", "")
    path = Path(file)
    if not path.is_file():
        raise DraftError(f"there is no file {file}; `batchfleet models init NAME` creates one")
    return path, class_name


def parse_publish_options(class_name: str, given: dict[str, Any]) -> PublishOptions:
    """What was typed, in one value."""
    if given.get("requirements") and given.get("environment"):
        raise click.UsageError("give either --requirements or --environment")
    limits = parse_overrides(given.pop("limits", ()))
    empty = [name for name, value in limits.items() if value is None]
    if empty:
        raise click.BadParameter(f"{empty[0]} has no value", param_hint="--limit")
    return PublishOptions(class_name=class_name, limits=limits, **given)
