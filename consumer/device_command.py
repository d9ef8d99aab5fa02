"""The commands that start device processes."""

import os
import sys
from pathlib import Path

from ..service.settings import Settings

_PROGRAM = "batchfleet.consumer.device"
_PACKAGE = Path(__file__).resolve().parents[1]
_BOOTSTRAP = Path(__file__).with_name("device") / "bootstrap.py"


def device_command(
    settings: Settings, python: Path | None = None, sources: Path | None = None
) -> list[str]:
    """The command of a device process, without its connection.

    Args:
        settings: of the worker.
        python: the interpreter of another environment; None is the worker's own.
        sources: the folder that a developer edits, if there is one.
    """
    if python is None:
        return [sys.executable, "-m", _PROGRAM, *_flags(settings, sources)]
    return [*_bootstrap(python), *_flags(settings, sources)]


def probe_command(python: Path) -> list[str]:
    """The command that ends with 0 where a device process could run under this interpreter."""
    return [*_bootstrap(python), "--probe"]


def _bootstrap(python: Path) -> list[str]:
    # Isolated: no PYTHONPATH and no folder of a user may change what an environment is.
    paths = os.pathsep.join(path for path in sys.path if path)
    tag = sys.implementation.cache_tag or ""
    return [str(python), "-I", str(_BOOTSTRAP), str(_PACKAGE), tag, paths]


def _flags(settings: Settings, sources: Path | None) -> list[str]:
    flags = ["--log-level", settings.log_level, "--log-format", settings.log_format]
    flags += ["--allow-code", settings.allow_code]
    if settings.cache:
        flags += ["--cache", settings.cache]
    return flags if sources is None else [*flags, "--sources", str(sources)]
