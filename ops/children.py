"""Programs of the fleet as child processes: started, awaited until ready, restarted, ended.

Everything here belongs to the main thread: the kernel ends a child when the thread that started it
ends.
"""

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import orjson

from ..service.back_off import BackOff, Restarts
from ..service.clock import Clock
from ..service.lifecycle import spawn
from ..service.settings import SECRET_FILE_VARIABLES, SETTING_ROWS, Settings
from ..wire.errors import BatchfleetError

_READY_LINE_BYTES_MAX = 64 * 1024
_READ_BYTES = 64 * 1024
_END_POLL_MS = 20.0
_BACK_OFF = BackOff(first_s=0.5, longest_s=30.0)


class ProgramError(BatchfleetError):
    """A program of the fleet ended, or did not get ready in time."""


def program_command(program: str) -> list[str]:
    """The command that runs `router` or `consumer`, which prints one JSON line when it is ready."""
    # `-P`: no file of the folder that we were started in takes the place of a module.
    return [sys.executable, "-P", "-m", "batchfleet.ops", program, "--json"]


def environment_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes a child run with exactly these settings.

    Not flags, because everybody on the machine can read a command line, passwords included.
    """
    values = {
        SETTING_ROWS[item.name].variable: str(getattr(settings, item.name))
        for item in fields(settings)
    }
    kept = {name: text for name, text in environ.items() if name not in SECRET_FILE_VARIABLES}
    return {**kept, **values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a child runs. `label` is its name in logs."""

    label: str
    command: Sequence[str]
    environ: Mapping[str, str]


class Child:
    """One program and the process that runs it at the moment, if any.

    Owns the process and its stdout: the first line says that it is ready, and whatever a model
    prints later goes to our stderr, so that the pipe never fills.
    """

    def __init__(self, program: Program, clock: Clock) -> None:
        self.program = program
        self.restart_ms = 0.0  # from its last death to its next start
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._head = b""
        self._facts: Mapping[str, Any] | None = None
        self._started_ms = 0.0
        self._restarts = Restarts(_BACK_OFF)
        self._restart_at_ms: float | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None while nothing runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the program.

        Raises:
            OSError: it cannot be started.
        """
        self._process = spawn(
            self.program.command, env=dict(self.program.environ), stdout=subprocess.PIPE
        )
        self._head = b""
        self._facts = None
        self._started_ms = self._clock.monotonic_ms()
        self._restart_at_ms = None
        os.set_blocking(self._stdout(), False)

    def _stdout(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def poll_ready(self) -> Mapping[str, Any] | None:
        """The program's ready line, if it has come by now.

        Raises:
            ProgramError: it ended, or said something else.
        """
        assert self._process is not None
        if self._facts is None:
            # In this order: it may say its line and end.
            exit_code = self._process.poll()
            self._read_head()
            if b"\n" in self._head:
                self._facts = self._parse_ready_line()
            elif exit_code is not None:
                raise ProgramError(
                    f"{self.program.label} exited with code {exit_code} before it was ready; "
                    "see its log above"
                )
        return self._facts

    def _read_head(self) -> None:
        self._head += self._read_now()
        if b"\n" not in self._head and len(self._head) > _READY_LINE_BYTES_MAX:
            raise ProgramError(f"{self.program.label} printed something other than its ready line")

    def _read_now(self) -> bytes:
        try:
            return os.read(self._stdout(), _READ_BYTES)
        except BlockingIOError:
            return b""

    def _parse_ready_line(self) -> Mapping[str, Any]:
        line, _, rest = self._head.partition(b"\n")
        _forward(rest)
        try:
            facts = orjson.loads(line)
        except ValueError as error:
            raise ProgramError(
                f"{self.program.label} printed {line[:80]!r} instead of its ready line"
            ) from error
        if not isinstance(facts, dict):
            raise ProgramError(
                f"{self.program.label} printed a ready line that is not a JSON object"
            )
        return facts

    def poll(self) -> int | None:
        """Forward what the program printed, and restart it when that is due.

        Returns the exit code once, when the program is found to have ended.
        """
        if self._process is None:
            if self._restart_at_ms is not None and self._now_ms() >= self._restart_at_ms:
                self.start()
            return None
        _forward(self._read_now())
        exit_code = self._process.poll()
        if exit_code is not None:
            self._schedule_restart()
        return exit_code

    def _now_ms(self) -> float:
        return self._clock.monotonic_ms()

    def _schedule_restart(self) -> None:
        now_ms = self._now_ms()
        self.restart_ms = 1000 * self._restarts.next_s(now_ms - self._started_ms)
        self._restart_at_ms = now_ms + self.restart_ms
        self._close()

    def _close(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def ask_to_stop(self) -> None:
        """Ask the program to end; `end` waits for that."""
        self._restart_at_ms = None
        if self._process is not None:
            self._process.terminate()

    def end(self, timeout_ms: float) -> bool:
        """Wait until the program has ended; after `timeout_ms` kill it, and return False.

        May be called twice.
        """
        if self._process is None:
            return True
        ended = self._wait(self._now_ms() + timeout_ms)
        if not ended:
            self._process.kill()
            self._process.wait()
        self._close()
        return ended

    def _wait(self, give_up_ms: float) -> bool:
        """Wait for the program's own end: its children may keep its stdout open forever.

        Reads meanwhile: a program that prints while it ends must not block on us.
        """
        assert self._process is not None
        poller = select.poll()
        poller.register(self._stdout(), select.POLLIN)
        while self._process.poll() is None:
            left_ms = give_up_ms - self._now_ms()
            if left_ms <= 0:
                return False
            if poller.poll(min(left_ms, _END_POLL_MS)) and not self._read_now():
                with suppress(subprocess.TimeoutExpired):  # it has closed its stdout
                    self._process.wait(min(left_ms, _END_POLL_MS) / 1000)
        return True


def _forward(printed: bytes) -> None:
    if printed:
        sys.stderr.write(printed.decode(errors="replace"))
