"""Lines about faults of a model's code, of which a caller can bring about thousands a second."""

from types import TracebackType
from typing import Any

from ...models.traces import trace_of, with_own_frames
from ...service.clock import Clock
from ...service.logs import OncePerKind
from ...wire.texts import kind_name, safe_text


class KindLogger:
    """Logs each kind of fault once, with its trace and all that is known, and then counts it.

    A kind is an event, the stage, the type of the exception and the line that raised it: nothing of
    what callers sent. Counts follow once a minute. Safe to use from any thread.
    """

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._kinds = OncePerKind(clock)

    def error(self, event: str, **fields: Any) -> None:
        """A fault that a request ended in."""
        if self._is_new(event, fields):
            self._logger.error(event, **_shown(fields))

    def warning(self, event: str, **fields: Any) -> None:
        """A fault that no request may have ended in."""
        if self._is_new(event, fields):
            self._logger.warning(event, **_shown(fields))

    def critical(self, event: str, **fields: Any) -> None:
        """What ends the process is logged each time."""
        self._logger.critical(event, **fields)

    def log_counts(self) -> None:
        """Log what was counted, if that is due."""
        for kind, count in self._kinds.summary().items():
            event, _, rest = kind.partition(" ")
            self._logger.warning(event, kind=rest, count=count)

    def _is_new(self, event: str, fields: dict[str, Any]) -> bool:
        self.log_counts()
        return self._kinds.admit(" ".join((event, *_kind_of(fields))))


def _shown(fields: dict[str, Any]) -> dict[str, Any]:
    # Only here, since it costs more than to answer the request.
    error = fields.get("exc_info")
    return fields if error is None else {**fields, "exc_info": with_own_frames(error)}


def _kind_of(fields: dict[str, Any]) -> list[str]:
    error = fields.get("exc_info")
    named = [str(fields[name]) for name in ("stage", "error_type") if name in fields]
    return named if error is None else [*named, kind_name(error), "at", place_of(error)]


def place_of(error: BaseException) -> str:
    """File and line where an error was raised."""
    last = last_frame(error)
    if last is None:
        return "an unknown place"
    return safe_text(f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}")


def last_frame(error: BaseException) -> TracebackType | None:
    """The innermost part of the trace of an error."""
    last = trace_of(error)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
