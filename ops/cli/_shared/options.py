"""Options that many commands share. Those for settings are drawn from the table of settings."""

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ....service.addresses import PORT
from ....service.logs import configure_logs
from ....service.settings import SETTING_ROWS, SettingRow, Settings
from ....service.settings_sources import load_settings
from ....wire.numbers import Range, shown_value
from .output import warn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

LOGS = ("log_level", "log_format")
# Which programs and variables a model's code meets.
ENVIRONMENTS = ("allow_environments", "device_environment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings of this process, where each came from, and the environment it was started in."""

    settings: Settings
    origins: Mapping[str, str]
    environ: Mapping[str, str]


class BoundedNumber(click.ParamType[Any]):
    """A number within a range; anything else is a usage error that names the range."""

    name = "number"

    def __init__(self, limits: Range) -> None:
        self.limits = limits

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """Read what was typed."""
        number = self.limits.read(value) if isinstance(value, str) else value
        if self.limits.fault(number):
            self.fail(f"{shown_value(value)} is not {self.limits.words}.", param, ctx)
        plain: int | float = self.limits.plain(number)
        return plain


def seconds(lowest: float, highest: float) -> BoundedNumber:
    """The type of an option for a time in seconds."""
    return BoundedNumber(Range(lowest, highest, whole=False))


port_option = click.option(
    "--port",
    type=BoundedNumber(PORT),
    help="Let the private server also listen on this port of 127.0.0.1, with a password. Without "
    "it, the server is reached through its Unix socket only.",
)


def settings_of(program: str) -> tuple[str, ...]:
    """Names of the settings that `program` looks at, in the order of the table."""
    rows = SETTING_ROWS.values()
    return tuple(row.name for row in rows if not row.programs or program in row.programs)


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options for these settings; it gets `Loaded` as its first argument.

    Settings without an option are still read from environment and file.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, config: Path | None, **options: Any) -> Any:
            flags = {name: options.pop(name) for name in names}
            return function(_load(flags, config), *args, **options)

        command: Callable[..., Any] = _config_option(run)
        for name in reversed(names):
            command = _setting_option(SETTING_ROWS[name])(command)
        return command

    return decorate


def _load(flags: Mapping[str, Any], config: Path | None) -> Loaded:
    settings, origins = load_settings(flags, os.environ, config)
    for row in SETTING_ROWS.values():
        if row.holds_password(flags.get(row.name)):
            warn(
                f"{row.flag} exposes its password to every user of this machine (`ps`); "
                f"use {row.variable}, or {row.variable}_FILE with the name of a file"
            )
    configure_logs(settings.log_level, settings.log_format)
    return Loaded(settings=settings, origins=origins, environ=dict(os.environ))


_config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with settings.  [BATCHFLEET_CONFIG; ./batchfleet.toml if there]",
)


def _setting_option(row: SettingRow) -> Callable[[Decorated], Decorated]:
    default = f"; default: {json.dumps(row.default)}" if row.default != "" else ""
    return click.option(
        row.flag,
        row.name,
        type=row.kind,
        default=None,
        help=f"{row.meaning[0].upper()}{row.meaning[1:]}.  [{row.variable}{default}]",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def examples(*commands: str) -> Callable[[Decorated], Decorated]:
    """Add examples to a command's help, one a line as they are; goes under its options."""
    return listing("Examples", *commands)


def listing(title: str, *entries: str) -> Callable[[Decorated], Decorated]:
    """Add a list to a command's help. The backspace tells click not to fill its lines."""

    def decorate(function: Decorated) -> Decorated:
        body = "\n".join(f"  {entry}" for entry in entries)
        function.__doc__ = f"{inspect.getdoc(function)}\n\n\b\n{title}:\n{body}"
        return function

    return decorate


def split_version(name: str) -> tuple[str, str | None]:
    """`MODEL/VERSION` or `MODEL` as typed; None for the version where none was named."""
    model, slash, version = name.partition("/")
    if slash and not version:
        raise click.BadParameter(f"{name!r} has no version after the slash")
    return model, version if slash else None
