"""Logs: structured, to stderr, one line each, safe to show on a terminal.

Log lines carry text from outside (names, paths, messages of foreign errors), so control characters
never reach the terminal as they are, and passwords in URLs are masked. A cause that repeats with
every request is logged once and then counted, by `OncePerKind`.
"""

import json
import logging
import os
import select
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from ..wire.texts import kind_name, safe_text, terminal_text, text_of
from .addresses import masked_text
from .clock import Clock

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json")
OTHER_KINDS = "other"

# Tracebacks are for reading; their line ends are ours, not a caller's.
_MULTILINE = ("exception", "stack")
# A part is a frame with its line, or an exception's own words.
_TRACE_PARTS = 1000
_TRACE_LINE_MAX = 10_000
_VALUE_MAX = 1_000_000
_SHOWN_CHARACTERS_MAX = 300


WriteLine = Callable[[str], None]
"""Writes one record, without its line end; never raises."""


def configure_logs(level: str, log_format: str, write_line: WriteLine | None = None) -> None:
    """Send structlog, the standard `logging` and captured warnings to stderr in one format.

    A logger that was bound before somebody else's code configures structlog or `logging` anew goes
    on as it was: nothing of it hangs on either. May be called again; the last call counts.

    Args:
        level: the least level that is logged.
        log_format: one of `LOG_FORMATS`.
        write_line: where records go; None = to whatever `sys.stderr` is at that moment.

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
    write = write_line or write_to_stderr
    show = total(render_trace, escape_controls, _renderer(log_format))
    structlog.configure(
        processors=[*prepare, show],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _LineLogger(write),
    )
    handler = _LineHandler(write)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=prepare,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, show],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def write_to_stderr(line: str) -> None:
    """Write a line to whatever `sys.stderr` is: tests and users' code put others in its place."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # it is closed, None, or its reader is gone
        return


class DescriptorLog:
    """Writes lines to a descriptor of its own; safe to use from any thread.

    What a program does to `sys.stderr`, or to descriptor 2, does not touch it. A reader who does
    not read holds a line up for `PATIENCE_MS`, once; after that lines are lost until he does.
    """

    PATIENCE_MS = 1000
    # What a pipe that is ready takes without blocking (PIPE_BUF).
    _CHUNK_BYTES = 4096

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)
        self._lock = threading.Lock()
        self._patience_ms = self.PATIENCE_MS  # guarded by _lock
        self._was_cut = False  # guarded by _lock; the last line lacks its end
        # Users' code forks; another thread of the parent may hold the lock just then.
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def write_line(self, line: str) -> None:
        """Write a line, or as much of it as the reader takes."""
        whole = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            rest = memoryview(b"\n" + whole if self._was_cut else whole)
            size = len(rest)
            try:
                while rest and self._poller.poll(self._patience_ms):
                    rest = rest[os.write(self._descriptor, rest[: self._CHUNK_BYTES]) :]
            except OSError:  # the reader is gone, and nobody is left to be told
                return
            self._patience_ms = 0 if rest else self.PATIENCE_MS
            self._was_cut = 0 < len(rest) < size or (self._was_cut and len(rest) == size)


class _LineLogger:
    """What structlog calls with a record that is rendered already."""

    def __init__(self, write_line: WriteLine) -> None:
        self.msg = write_line
        self.debug = self.info = self.warning = self.error = self.critical = write_line


class _LineHandler(logging.Handler):
    """Hands records of the standard `logging` on."""

    def __init__(self, write_line: WriteLine) -> None:
        super().__init__()
        self._write_line = write_line

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; one that cannot be shown is told with its place."""
        try:
            self._write_line(masked_text(self.format(record)))
        except Exception as error:  # noqa: BLE001  a record is no reason to fail
            place = safe_text(f"{record.pathname}:{record.lineno}")
            self._write_line(f"a log record of {place} cannot be shown: {kind_name(error)}")


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
            total(
                render_trace,
                escape_controls,
                structlog.dev.ConsoleRenderer(
                    colors=False, exception_formatter=structlog.dev.plain_traceback
                ),
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: _LineLogger(write_to_stderr),
    )


def _renderer(log_format: str) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=_is_at_terminal(), exception_formatter=structlog.dev.plain_traceback
    )


def _is_at_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # it is None, of some class, or closed
        return False


# Rendering. Records hold values of other people's classes, whose code may raise anything.


def total(*steps: Processor) -> Processor:
    """One processor of several that gives a line for every record, whatever is in it."""

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        result: Any = dict(event)
        try:
            for step in steps:
                result = step(logger, method, result)
            return masked_text(str(result))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  the code of a value in the record
            return _plain_line(event, error)

    return render


def _plain_line(event: EventDict, error: BaseException) -> str:
    shown = {text_of(name): text_of(value) for name, value in event.items()}
    line = json.dumps({**shown, "not_rendered": f"{kind_name(error)}: {text_of(error)}"})
    return masked_text(line)


def render_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor that puts the trace of `exc_info` into `exception`."""
    error: Any = event.pop("exc_info", None)
    if type(error) is tuple:
        error = error[1] if len(error) == 3 else None
    elif not issubclass(type(error), BaseException):
        error = sys.exc_info()[1] if error else None
    if error is not None:
        event["exception"] = trace_text(error)
    return event


def trace_text(error: BaseException) -> str:
    """The trace of an error, of bounded size; what keeps it from being shown where it cannot be."""
    try:
        told = traceback.TracebackException(
            type(error), error, vars(BaseException)["__traceback__"].__get__(error)
        )
        lines = [safe_text(line, _TRACE_LINE_MAX) for line in told.format()]
        if len(lines) > _TRACE_PARTS:
            half = _TRACE_PARTS // 2
            lines = [*lines[:half], f"  … {len(lines) - 2 * half} more\n", *lines[-half:]]
        return "".join(lines).rstrip("\n")
    except BaseException as fault:  # noqa: BLE001  the error's own code, or what it was made to hold
        reason = f"its trace cannot be shown: {kind_name(fault)}"
        return f"{kind_name(error)}: {text_of(error)} ({reason})"


def escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor that writes control characters as escapes; other values are shown by `repr`."""
    return {name: _escaped(name, value) for name, value in event.items()}


def _escaped(name: str, value: Any) -> Any:
    if not issubclass(type(value), str):
        return value
    return terminal_text(safe_text(value, _VALUE_MAX), "\n\t" if name in _MULTILINE else "")


def shown_error(error: BaseException) -> str:
    """An error that nobody foresaw in one line, with the innermost place that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{kind_name(error)}: {text_of(error)}"[:_SHOWN_CHARACTERS_MAX] + place


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
