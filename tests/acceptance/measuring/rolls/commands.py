"""Commands of `batchfleet` as an operator types them at a fleet, and what became of them."""

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from batchfleet.service.lifecycle import spawn
from batchfleet.service.settings import SETTING_ROWS
from tests.support.commands import PROGRAM

_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ran to its end. Times are `perf_counter`'s."""

    exit_code: int
    out: str
    err: str
    began: float
    ended: float

    @property
    def told(self):
        """All that it printed."""
        return self.out + self.err


def command(fleet, *words):
    """Run a command to its end."""
    with typed(fleet, *words) as end:
        return end()


def must(fleet, *words):
    """Run a command that has to succeed."""
    done = command(fleet, *words)
    if done.exit_code:
        raise RuntimeError(f"batchfleet {' '.join(words)}: {done.told.strip()[-400:]}")
    return done


@contextmanager
def typed(fleet, *words):
    """Start a command; yields a function that waits for its end."""
    began = perf_counter()
    process = spawn(
        [*PROGRAM, *words],
        env=_environment(fleet),
        cwd=fleet.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def end():
        out, err = process.communicate(timeout=_PATIENCE_S)
        return Ended(
            exit_code=process.returncode, out=out, err=err, began=began, ended=perf_counter()
        )

    try:
        yield end
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _environment(fleet):
    """As the programs of the fleet have it."""
    values = {"redis_url": fleet.url, "namespace": fleet.namespace, "store": fleet.store.root}
    values |= {
        name: fleet.settings[name] for name in ("cache", "allow_code") if name in fleet.settings
    }
    return {
        "PATH": os.defpath,
        "HOME": str(fleet.folder),
        **{SETTING_ROWS[name].variable: str(value) for name, value in values.items()},
    }
