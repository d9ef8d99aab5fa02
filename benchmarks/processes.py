"""Child processes of a measurement: a line in, a line out, and the CPU that each has used."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
import psutil

from batchfleet.service.lifecycle import spawn

ROOT = Path(__file__).parents[1]
_LINE_BYTES_MAX = 1024 * 1024
# A fleet that is told to end gives its workers 20 s to finish what they hold.
_END_TIMEOUT_S = 30.0


class MeasuringError(Exception):
    """A process of the measurement ended, was silent for too long, or spoke nonsense."""


class Conversation:
    """A module run as a child that says one line of JSON when ready and one for each line it gets.

    It ends with us, and when its stdin closes. Start it from the main thread.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._running().pid

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "start it first"
        return self._process

    def start(self, timeout_s: float) -> Any:
        """Start the child and return what it says when it is ready.

        Raises:
            MeasuringError: it did not get ready in time.
        """
        self._process = spawn(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self.listen(timeout_s)

    def ask(self, question: Any, timeout_s: float) -> Any:
        """Say one line and return the answer.

        Raises:
            MeasuringError: no answer in time.
        """
        stdin = self._running().stdin
        assert stdin is not None
        try:
            stdin.write(orjson.dumps(question) + b"\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise MeasuringError(f"{self._module} ended; its log is above") from error
        return self.listen(timeout_s)

    def listen(self, timeout_s: float) -> Any:
        """The next line that the child says. Waits up to `timeout_s` for each part of it.

        Raises:
            MeasuringError: silence, the end, or something else than JSON.
        """
        stdout = self._running().stdout
        assert stdout is not None
        while b"\n" not in self._unread:
            readable, _, _ = select.select([stdout], [], [], timeout_s)
            if not readable:
                raise MeasuringError(f"{self._module} said nothing for {timeout_s:g} s")
            part = os.read(stdout.fileno(), 65536)
            if not part or len(self._unread) > _LINE_BYTES_MAX:
                raise MeasuringError(f"{self._module} ended or rambles; its log is above")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise MeasuringError(f"{self._module} said {line[:80]!r}") from error

    def stop(self) -> None:
        """End the child. May be called twice, and without a start."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ran to its end: its exit code, and its last line, which was JSON."""

    exit_code: int
    last_line: Any


def run_for_json(module: str, arguments: Sequence[str], timeout_s: float) -> Finished:
    """Run a module to its end; what it prints to stderr goes to ours.

    Raises:
        MeasuringError: it took longer, or its last line is no JSON.
    """
    process = spawn([sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise MeasuringError(f"{module} took over {timeout_s:g} s") from error
    finally:
        process.kill()
        process.wait()
    lines = printed.strip().splitlines()
    try:
        return Finished(process.returncode, orjson.loads(lines[-1]))
    except (IndexError, orjson.JSONDecodeError) as error:
        raise MeasuringError(
            f"{module} ended with exit code {process.returncode} and without its line of JSON"
        ) from error


def cpu_s(pids: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Name → CPU seconds that its processes have used so far, in user and kernel mode.

    Raises:
        MeasuringError: one of them has ended, so that a difference would tell nothing.
    """
    try:
        return {name: sum(map(_cpu_s_of, numbers)) for name, numbers in pids.items()}
    except psutil.NoSuchProcess as error:
        raise MeasuringError(f"process {error.pid} ended during the measurement") from error


def _cpu_s_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    return [child.pid for child in psutil.Process(pid).children()]
