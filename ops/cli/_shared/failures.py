"""How an error looks on a terminal: one line with its name and number, and one with the remedy."""

import sys
from typing import IO, Any

import click

from ....service.addresses import masked_text
from ....wire.errors import (
    BatchfleetError,
    EnvironmentMissingError,
    ErrorKind,
    ProtocolError,
    RequestError,
    ServerError,
    SettingsError,
    StoreError,
    VersionRefusedError,
)
from ....wire.texts import terminal_text

_NAMES: tuple[tuple[type[BatchfleetError], str, str], ...] = (
    (SettingsError, "settings", "`batchfleet settings` lists all settings"),
    (EnvironmentMissingError, "environment", ""),
    (VersionRefusedError, "model", ""),
    (
        StoreError,
        "store",
        "`batchfleet models list` shows its contents; --store names another store",
    ),
    (
        ServerError,
        "server",
        "check --redis-url or BATCHFLEET_REDIS_URL; `batchfleet up` starts a private server",
    ),
    (ProtocolError, "protocol", "use the same release of batchfleet on both sides"),
)

_REMEDIES: dict[ErrorKind, str] = {
    ErrorKind.UNKNOWN_MODEL: "`batchfleet status` lists the deployed models",
    ErrorKind.UNKNOWN_VERSION: "`batchfleet status` lists the deployed versions",
    ErrorKind.UNKNOWN_REQUEST: "replies expire; check model, tenant and id",
    ErrorKind.BUSY: "try again later, start more workers, or raise `backlog` with `deploy set`",
    ErrorKind.NO_WORKER: "`batchfleet status` shows why; `batchfleet consumer` starts a worker",
    ErrorKind.DEADLINE_EXCEEDED: "use a longer --timeout, or start more workers",
    ErrorKind.TOO_LONG: "shorten the text, or use `--truncate end` if the model supports it",
}


def explain(error: BatchfleetError) -> tuple[str, str]:
    """What went wrong in one line, and what to do about it, which may be empty."""
    if isinstance(error, RequestError):
        return str(error), _REMEDIES.get(error.kind, "")
    for cls, name, remedy in _NAMES:
        if isinstance(error, cls):
            return f"{name}: {error}", remedy
    return str(error), ""


def of_machine(error: OSError) -> BatchfleetError:
    """What the machine refused, as an error of ours."""
    reason = error.strerror or str(error)
    return BatchfleetError(f"{error.filename}: {reason}" if error.filename else reason)


def escape_message(error: click.ClickException) -> None:
    """Make what click says of wrong usage safe to show: it quotes what was typed."""
    kept = "\n\t" if isinstance(error, click.MissingParameter | CommandError) else ""
    # Declared final, and yet the only way to what click will print.
    error.message = terminal_text(error.message, kept)  # type: ignore[misc]


class CommandError(click.ClickException):
    """A batchfleet error on its way to stderr; exit code 1."""

    def __init__(self, error: BatchfleetError) -> None:
        text, self.remedy = explain(error)
        # Settings have their faults one a line; all else may quote foreign words.
        kept = "\n" if isinstance(error, SettingsError) else ""
        super().__init__(terminal_text(masked_text(text), kept))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, in red where that is a terminal."""
        stream = file or sys.stderr
        text = click.style("error: ", fg="red") + self.message
        click.echo(text, file=stream, color=self.show_color)
        if self.remedy:
            click.echo(f"       {self.remedy}", file=stream)
