"""A reader's terminals: one that a fleet stays in, one to type commands at, one for `dev`."""

import select
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from documents.blocks import ready_line, reason_left_out, with_url
from support.fleet import until

from batchfleet.service.lifecycle import spawn

COMMAND_S = 90.0
READY_S = 90.0
END_S = 30.0
_BASH = ["bash", "--noprofile", "--norc"]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended, or is ready, and what it showed (stdout and stderr together)."""

    command: str
    exit_code: int
    shown: str


class LastingCommand:
    """A command that stays until Ctrl-C."""

    def __init__(self, command, setting, folder, log_path):
        self.command = command
        self._log_path = log_path
        self._ready = ready_line(command)
        with log_path.open("wb") as log:
            self._process = spawn(
                [*_BASH, "-c", f"{setting}\nexec {command}"],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                death_signal=signal.SIGTERM,
            )  # fmt: skip

    def shown(self):
        return self._log_path.read_text(errors="replace")

    def wait_until_ready(self):
        """Wait for the ready line; returns the fleet's URL."""

        def ready():
            ended = self._process.poll() is not None
            found = self._ready.search(self.shown())
            assert found or not ended, f"{self.command} ended: {self.shown()}"
            return found

        return until(ready, f"{self.command} is ready", READY_S).group(1)

    def interrupt(self):
        """Ctrl-C; returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(END_S)

    def kill(self):
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(END_S)


class Terminal:
    """A shell in a folder, with the environment's programs first on its PATH.

    A `redis-cli` of the tests' own is last on it: the real one is used where it is installed.
    """

    def __init__(self, folder: Path, scratch: Path):
        self._folder, self._scratch = folder, scratch
        self._url = None
        self._lasting = None
        self._beside = None  # `dev`, which readers stop before they go on
        self._setting = self._set_up()
        self._shell = spawn(
            _BASH, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._type(self._setting)

    def _set_up(self):
        spare = self._scratch / "spare"
        spare.mkdir()
        program = spare / "redis-cli"
        source = Path(__file__).with_name("redis_cli.py").read_text()
        program.write_text(f"#!{sys.executable}\n{source}")
        program.chmod(0o755)
        programs = shlex.quote(str(Path(sys.executable).parent))
        cache = shlex.quote(str(self._scratch / "cache"))
        path = f"export PATH={programs}:$PATH:{shlex.quote(str(spare))}"
        return f"{path} BATCHFLEET_CACHE={cache}"

    def run(self, command):
        """Run a command as a reader would; None for one that is left out."""
        if reason_left_out(command) is not None:
            return None
        self._beside = self._end(self._beside)
        if command.startswith("batchfleet dev") and self._lasting is not None:
            self._beside, _ = self._start(command, "beside.log")
            return Ran(command, 0, self._beside.shown())
        if ready_line(command):
            self._lasting = self._end(self._lasting)
            self._lasting, self._url = self._start(command, "lasting.log")
            return Ran(command, 0, self._lasting.shown())
        return self._type(with_url(command, self._url))

    def _start(self, command, log_name):
        """Start a command that stays; returns it and the URL of its server."""
        lasting = LastingCommand(command, self._setting, self._folder, self._scratch / log_name)
        return lasting, lasting.wait_until_ready()

    def _type(self, command):
        shown = self._scratch / "shown.txt"
        line = f"{{ {command}\n}} </dev/null >{shlex.quote(str(shown))} 2>&1; echo $?\n"
        self._shell.stdin.write(line.encode())
        ready, _, _ = select.select([self._shell.stdout], [], [], COMMAND_S)
        assert ready, f"{command} did not end within {COMMAND_S:g} s: {shown.read_text()}"
        return Ran(command, int(self._shell.stdout.readline()), shown.read_text())

    def _end(self, lasting):
        """Stop what stays, if anything does, as Ctrl-C does."""
        if lasting is None:
            return
        try:
            code = lasting.interrupt()
            assert code == 0, f"{lasting.command} ended with {code}: {lasting.shown()}"
        finally:
            lasting.kill()

    def close(self):
        try:
            self._beside = self._end(self._beside)
            self._lasting = self._end(self._lasting)
        finally:
            self._shell.kill()
            self._shell.wait(END_S)
            self._shell.stdin.close()
            self._shell.stdout.close()
