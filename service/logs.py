"""Logs: structured, to stderr, one line each, safe to show on a terminal.

Log lines carry text from outside (names, paths, messages of foreign errors), so control characters
never reach the terminal as they are. A cause that repeats with every request is logged once and
then counted, by `OncePerKind`.
"""

import logging
import sys
import threading
import traceback
from collections import Counter
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from .clock import Clock

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json")
OTHER_KINDS = "other"

# Tracebacks are for reading; their line ends are ours, not a caller's.
_MULTILINE = ("exception", "stack")
_SHOWN_CHARACTERS_MAX = 300


def configure_logs(level: str, log_format: str) -> None:
    """Send structlog, the standard `logging` and captured warnings to stderr in one format.

    May be called again; the last call counts.

    Raises:
        ValueError: a level or format outside `LOG_LEVELS` and `LOG_FORMATS`.
    """
    if level not in LOG_LEVELS or log_format not in LOG_FORMATS:
        raise ValueError(f"no log level {level!r} or no log format {log_format!r}")
    prepare: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*prepare, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=prepare,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                escape_controls,
                _renderer(log_format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


class _StderrLogger:
    """Writes lines to whatever `sys.stderr` is at that moment: tests put others in its place."""

    def msg(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")

    debug = info = warning = error = critical = msg


def configure_logs_if_unset() -> None:
    """Plain lines from warnings on, on stderr, unless the program has set structlog up itself.

    For use as a library: the standard `logging`, which belongs to the program, is left alone.
    structlog's own default draws frames around traces that show the values of all variables, which
    may be what a caller sent.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            escape_controls,
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: _StderrLogger(),
    )


def _renderer(log_format: str) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor that writes control characters as escapes; other values are shown by `repr`."""
    return {name: _escaped(name, value) for name, value in event.items()}


def _escaped(name: str, value: Any) -> Any:
    if not isinstance(value, str) or value.isprintable():
        return value
    kept = "\n\t" if name in _MULTILINE else ""
    return "".join(
        character
        if character.isprintable() or character in kept
        else character.encode("unicode_escape").decode()
        for character in value
    )


def shown_error(error: BaseException) -> str:
    """An error that nobody foresaw in one line, with the innermost place that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS_MAX] + place


class OncePerKind:
    """Decides which of many equal reports are logged: the first of each kind, then a summary.

    At most `kinds_max` kinds are told apart, since a kind may come from outside; further ones are
    counted together as `OTHER_KINDS`. Safe to use from any thread.
    """

    def __init__(self, clock: Clock, *, kinds_max: int = 64, summary_ms: float = 60_000) -> None:
        self._clock = clock
        self._kinds_max = kinds_max
        self._summary_ms = summary_ms
        self._lock = threading.Lock()
        self._unsaid: Counter[str] = Counter()  # guarded by _lock; 0 = logged, nothing since
        self._since_ms = clock.monotonic_ms()  # guarded by _lock

    def admit(self, kind: str, count: int = 1) -> bool:
        """Report `count` of a kind; True where it is the first and the caller should log it."""
        with self._lock:
            if kind not in self._unsaid and len(self._unsaid) >= self._kinds_max:
                kind = OTHER_KINDS
            if kind in self._unsaid:
                self._unsaid[kind] += count
                return False
            self._unsaid[kind] = 0
            return True

    def summary(self) -> dict[str, int]:
        """Counts per kind that no log line has told yet, once `summary_ms` has passed.

        Empty before that. Afterwards every kind counts as new.
        """
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._since_ms < self._summary_ms:
                return {}
            self._since_ms = now_ms
            unsaid = {kind: count for kind, count in self._unsaid.items() if count}
            self._unsaid.clear()
            return unsaid
