"""What the commands `router` and `consumer` share: run a program, and print when it is ready."""

import os
from collections.abc import Callable
from typing import Protocol

import click

from ....service.lifecycle import StopSignal
from ....service.memory import keep_freed_memory
from .output import print_json, say


class FleetProgram(Protocol):
    """A program of the fleet."""

    def run(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> int:
        """Run until `stop`; call `on_ready` once; return the exit code."""


def run_program(program: FleetProgram, label: str, *, as_json: bool) -> None:
    """Run a program until a signal stops it, and exit with its code."""
    keep_freed_memory()
    stop = StopSignal()
    stop.install()

    def on_ready(facts: dict[str, object]) -> None:
        if as_json:
            print_json({"ready": True, "pid": os.getpid(), **facts})
        else:
            say(f"{label} is ready; Ctrl-C stops it", err=True)

    exit_code = program.run(stop, on_ready)
    click.get_current_context().exit(exit_code)
