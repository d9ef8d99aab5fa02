"""The command that starts a device process. Pure."""

import sys
from pathlib import Path

from ..service.settings import Settings

_PROGRAM = "batchfleet.consumer.device"


def device_command(settings: Settings, sources: Path | None = None) -> list[str]:
    """The command for the worker's own Python; its connection is named by whoever starts it.

    `sources` is the folder that a developer edits, if there is one.
    """
    return [sys.executable, "-m", _PROGRAM, *_flags(settings, sources)]


def _flags(settings: Settings, sources: Path | None) -> list[str]:
    flags = ["--log-level", settings.log_level, "--log-format", settings.log_format]
    flags += ["--allow-code", settings.allow_code]
    if settings.cache:
        flags += ["--cache", settings.cache]
    return flags if sources is None else [*flags, "--sources", str(sources)]
