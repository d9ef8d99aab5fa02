"""Whether a version's Python environment is here, and whether a device process can run in it."""

import subprocess
from pathlib import Path

from ..models.cache import default_cache
from ..models.environments import python_of
from ..wire.errors import StoreError
from ..wire.texts import safe_text
from .device_command import probe_command

_PROBE_TIMEOUT_S = 20.0
_REASON_CHARACTERS_MAX = 300


class Interpreters:
    """Finds the interpreters of environments; one that was found fit is not looked at again."""

    def __init__(self, cache: str) -> None:
        self._cache = cache
        self._fit: dict[str, Path] = {}

    def find(self, environment: str, version: str) -> tuple[Path | None, str]:
        """The interpreter of an environment, None for the worker's own; and why there is none.

        `version` is the model's version that needs it, `model/version`.
        """
        if not environment:
            return None, ""
        known = self._fit.get(environment)
        if known is not None and known.exists():
            return known, ""
        try:
            cache = Path(self._cache) if self._cache else default_cache()
            python = python_of(environment, cache, version)
        except StoreError as error:
            return None, str(error)
        reason = _why_unfit(python)
        if reason:
            return None, f"its environment {environment} cannot run a device process: {reason}"
        self._fit[environment] = python
        return python, ""


def _why_unfit(python: Path) -> str:
    """Why a device process would not start under an interpreter; empty where it would."""
    try:
        done = subprocess.run(
            probe_command(python),
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return safe_text(said[-1], _REASON_CHARACTERS_MAX)
