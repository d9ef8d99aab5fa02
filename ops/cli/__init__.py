"""The command line `batchfleet`: one file a command, of its name, loaded when it is run.

The table below holds each command's line of help, so that `batchfleet --help` imports no command at
all; a test compares the lines with the commands.
"""

import errno
import os
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from ...wire.errors import BatchfleetError
from ._shared.failures import CommandError, escape_message, of_machine
from ._shared.streams import safe_streams

COMMANDS = {
    "up": "Start a whole fleet on this machine.",
    "dev": "Serve a model from its source file; reload it on save.",
    "router": "Run a router.",
    "consumer": "Run a worker.",
    "jobs": "Run a jobs worker.",
    "deploy": "Put a model version in service.",
    "undeploy": "Take a model, or one version of it, out of service.",
    "roll": "Move traffic to another version step by step, and back.",
    "models": "Add versions to the model store and inspect them.",
    "infer": "Send a request and wait for the reply.",
    "submit": "Send a request and print its id.",
    "result": "Wait for the reply to a submitted request.",
    "requests": "Inspect and cancel open requests.",
    "dead": "Inspect dead letters (failed requests); send them again.",
    "pause": "Stop processing the requests of a model.",
    "resume": "End a pause.",
    "status": "Show models, queues, workers and problems.",
    "settings": "Show all settings and the origin of each value.",
    "demo": "Embed real texts with a fleet, measure it and search them.",
}

# Commands of a group by the word that one would type without it.
_ELSEWHERE = {
    "environments": "models environment",
    "environment": "models environment",
    "publish": "models publish",
    "import": "models import",
    "init": "models init",
    "try": "models try",
    "list": "models list",
}


class FleetGroup(click.Group):
    """Loads commands on demand, and turns batchfleet's errors into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command `cmd_name`; None where there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f".{cmd_name}", __name__), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; for an unknown one, suggest the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], [*COMMANDS, *_ELSEWHERE], n=1)
            if near:
                meant = _ELSEWHERE.get(near[0], near[0])
                ctx.fail(f"No such command {args[0]!r}. Did you mean `batchfleet {meant}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; as a program of its own, on streams that are safe."""
        if not standalone_mode:
            return self._run(*args, standalone_mode=False, **extra)
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            extra.setdefault("color", False)
        with safe_streams():
            return self._run(*args, **extra)

    def _run(self, *args: Any, **extra: Any) -> Any:
        return super().main(*args, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read what was typed before the command's name."""
        try:
            return super().make_context(*args, **extra)
        except click.ClickException as error:
            escape_message(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            escape_message(error)
            raise
        except BatchfleetError as error:
            if ctx.params["debug"]:
                raise
            raise CommandError(error) from error
        except OSError as error:  # no room, no right, no such folder: what the machine refuses
            if ctx.params["debug"] or error.errno == errno.EPIPE:  # click ends quietly then
                raise
            raise CommandError(of_machine(error)) from error


@click.group(cls=FleetGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(package_name="batchfleet")
def main(*, debug: bool) -> None:
    """A fleet of batching model workers behind Redis.

    To start, run `batchfleet models import minilm`, then `batchfleet up`.
    Each command has --help. Exit codes: 0 success, 1 error, 2 wrong usage.
    """
    del debug  # read from the context by FleetGroup.invoke
