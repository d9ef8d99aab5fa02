"""Commands as processes of their own, run to their end."""

import subprocess
import sys
from contextlib import contextmanager

from batchfleet.service.lifecycle import spawn

PROGRAM = [sys.executable, "-m", "batchfleet.ops"]
TIMEOUT_S = 60


def run(command, *, exit_code=0, timeout_s=TIMEOUT_S, **options):
    """Run a command, which must end with `exit_code`; gives what it printed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout_s,
        check=False, **options,
    )  # fmt: skip
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


def batchfleet(*arguments, **options):
    """Run a command of ours, as `run` does."""
    return run([*PROGRAM, *arguments], **options)


@contextmanager
def staying(*arguments, log, program=PROGRAM, **options):
    """A command that stays once it has said its line of JSON; its stderr goes to the file `log`."""
    with log.open("wb") as file:
        command = [*program, *arguments, "--json"]
        process = spawn(command, stdout=subprocess.PIPE, stderr=file, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
