"""Applies one fault after the other to a copy of the tree and runs the tests that must notice."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 180
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info"
)
# What pytest says when tests ran and some failed; any other failure is no verdict.
_PASSED, _FAILED = 0, 1
_TAIL_LINES = 15


class BrokenRunError(RuntimeError):
    """The tests gave no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one mutant. `note` tells what went wrong where it was not killed."""

    name: str
    killed: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Workshop:
    """A copy of the tree that tests are run in, and whose package they import."""

    root: Path
    environ: Mapping[str, str]

    @classmethod
    def copied_from(cls, tree: Path, folder: Path, environ: Mapping[str, str]) -> "Workshop":
        """Copy a tree into a folder.

        Raises:
            BrokenRunError: tests would import another tree.
        """
        root = folder / "tree"
        shutil.copytree(tree, root, symlinks=True, ignore=_LEFT_OUT)
        workshop = cls(root, environ)
        workshop.check_import()
        return workshop

    def _environ(self) -> dict[str, str]:
        # Byte code is told apart by time and size, which a quick change may leave as they were.
        return {
            **self.environ,
            "PYTHONPATH": str(self.root / "namespace"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def check_import(self) -> None:
        """Make sure that the copy is what is tested.

        Raises:
            BrokenRunError: another tree would be imported.
        """
        found = self._run("-c", "import batchfleet; print(batchfleet.__file__)").stdout.strip()
        if not found.startswith(str(self.root)):
            raise BrokenRunError(
                f"the copy in {self.root} is not imported, but {found or 'nothing'}"
            )

    def all_pass(self, tests) -> bool:
        """Whether all of these tests pass.

        Raises:
            BrokenRunError: they could not be run.
        """
        try:
            run = self._run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
        except subprocess.TimeoutExpired as error:
            raise BrokenRunError(f"no end after {_TIMEOUT_S} s") from error
        if run.returncode not in (_PASSED, _FAILED):
            lines = (run.stdout + run.stderr).splitlines()
            raise BrokenRunError("\n".join(lines[-_TAIL_LINES:]))
        return run.returncode == _PASSED

    def judge(self, mutant) -> Verdict:
        """Apply a fault, run its tests, and take it back."""
        path = self.root / mutant.path
        original = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied_to(original), encoding="utf-8")
            survives = self.all_pass(mutant.tests)
        except (BrokenRunError, ValueError) as error:
            return Verdict(name=mutant.name, killed=False, note=str(error))
        finally:
            path.write_text(original, encoding="utf-8")
        note = "its tests pass" if survives else ""
        return Verdict(name=mutant.name, killed=not survives, note=note)
