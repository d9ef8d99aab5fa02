"""Environments that must not run: their interpreters leave a mark when they do."""

import json
import sys


class Trap:
    """A virtual environment whose interpreter leaves a mark, and the variables it was given."""

    def __init__(self, folder, mark):
        self.folder, self.mark = folder, mark
        self.python = folder / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        self.python.write_text(f"#!/bin/sh\nenv > '{mark}'\nexit 1\n")
        self.python.chmod(0o755)

    @property
    def was_sprung(self):
        return self.mark.exists()


def forge_built(cache, environment, mark):
    """What lies in a cache as if it had been built from the lock file of an environment."""
    digest, tag = environment.removeprefix("env:"), sys.implementation.cache_tag
    trap = Trap(cache / "environments" / f"{digest}-{tag}", mark)
    stamp = {"sha256": digest, "python": tag}
    (trap.folder / "batchfleet-environment.json").write_text(json.dumps(stamp))
    return trap
