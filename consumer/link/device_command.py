"""The commands that start device processes."""

import os
import sys
from pathlib import Path

from ...models.cache import find_cache
from ...service.settings import Settings

_NAME = "batchfleet"
_PROGRAM = "consumer.device"
_PACKAGE = Path(__file__).resolve().parents[2]
_BOOTSTRAP = Path(__file__).parents[1] / "device" / "bootstrap.py"


def device_command(
    settings: Settings, python: Path | None = None, sources: Path | None = None
) -> list[str]:
    """The command of a device process, without its connection.

    Args:
        settings: of the worker.
        python: the interpreter of another environment; None is the worker's own.
        sources: the folder that a developer edits, if there is one.
    """
    return [*module_command(python, _PROGRAM), *_flags(settings, sources)]


def probe_command(python: Path) -> list[str]:
    """The command that ends with 0 where a device process could run under this interpreter."""
    return module_command(python, f"{_PROGRAM}.opening")


def module_command(python: Path | None, module: str) -> list[str]:
    """The command that runs a module of this package, where users' code runs.

    `module` is named relative to the package, and needs no more than a device process does.
    `python` is the interpreter of another environment; None is our own.
    """
    if python is None:
        # Not from the folder we were started in: a file there must not hide a module of its name.
        return [sys.executable, "-P", "-m", f"{_NAME}.{module}"]
    # Isolated: no PYTHONPATH and no folder of a user may change what an environment is.
    paths = os.pathsep.join(path for path in sys.path if path)
    tag = sys.implementation.cache_tag or ""
    return [str(python), "-I", str(_BOOTSTRAP), str(_PACKAGE), tag, paths, module]


def _flags(settings: Settings, sources: Path | None) -> list[str]:
    flags = ["--log-level", settings.log_level, "--log-format", settings.log_format]
    flags += ["--allow-code", settings.allow_code]
    if not settings.shares_store:
        flags += ["--own-store"]
    # Told, so that nothing which a model does to its environment or folder can move it.
    cache = find_cache(settings.cache)
    if cache is not None:
        flags += ["--cache", str(cache)]
    return flags if sources is None else [*flags, "--sources", str(sources.absolute())]
