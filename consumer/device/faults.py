"""What an exception of a model's code means for the request whose row it was about."""

import re
import sys
import traceback
from bdb import BdbQuit
from typing import Any, Final, cast

from ...models.traces import with_own_frames
from ...service.clock import Clock
from ...service.logs import OncePerKind
from ...wire.errors import ErrorKind, RequestError
from ...wire.limits import ERROR_MESSAGE_CHARACTERS_MAX
from ..protocol import Failure

_DIGITS: Final = re.compile(r"[0-9]+")


class ModelLeftError(BaseException):
    """A model's code raised what is meant to end a program, such as `SystemExit`.

    No `Exception`, like its cause: it ends the device process. Its words are the cause's.
    """


def left_by(error: BaseException, stage: str, logger: Any) -> ModelLeftError:
    """What to raise where a model's code asks for the end; the log names the model and its line."""
    if not isinstance(error, ModelLeftError):  # which the stage that a warm-up was in has told
        logger.critical("model_left", stage=stage, exc_info=with_own_frames(error))
    return ModelLeftError(describe(error))


class FaultLog:
    """Tells a model's author of faults that leave no trace of their own.

    Each kind is told once and then counted. Nothing of what callers sent is in the lines. Safe to
    use from any thread.
    """

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._outputs = OncePerKind(clock)
        self._refusals = OncePerKind(clock)

    def note(self, error: RequestError) -> RequestError:
        """Log an error if it is a `bad_output`; returns it."""
        if error.kind is ErrorKind.BAD_OUTPUT:
            for kind, count in self._outputs.summary().items():
                self._logger.error("bad_output", reason=kind, count=count)
            if self._outputs.admit(_DIGITS.sub("N", error.message)):
                self._logger.error("bad_output", reason=error.message, count=1)
        return error

    def note_refusal(self, error: ValueError) -> None:
        """Log where `preprocess` raised a `ValueError`, which may be a bug as well as a refusal."""
        error = cast("ValueError", with_own_frames(error))
        self._logger.debug("row_refused", exc_info=error)
        for place, count in self._refusals.summary().items():
            self._logger.warning("rows_refused", at=place, count=count)
        place = _place_of(error)
        if self._refusals.admit(place):
            self._logger.warning("rows_refused", at=place, error_type=type(error).__name__, count=1)


def _place_of(error: BaseException) -> str:
    """File and line where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def is_memory_error(error: BaseException) -> bool:
    """Whether memory, of the host or of the device, was too small.

    torch is asked only where a model has imported it; this module must not bring it in.
    """
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, getattr(torch, "OutOfMemoryError", ()))
    )


def preprocess_error(error: Exception, logger: Any, fault_log: FaultLog) -> RequestError:
    """The error of a request whose row `preprocess` refused or failed on."""
    if isinstance(error, ValueError):
        fault_log.note_refusal(error)
        return RequestError.of(ErrorKind.BAD_INPUTS, str(error) or "the model refuses this row")
    return model_error(error, "preprocess", logger)


def model_error(error: Exception, stage: str, logger: Any) -> RequestError:
    """The error of a request on which model code raised `error`; the trace goes to the log only."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, BdbQuit):
        logger.warning("debugger_quit", stage=stage, reason=describe(error))
        return RequestError.of(ErrorKind.MODEL_ERROR, describe(error))
    logger.error("model_raised", stage=stage, exc_info=with_own_frames(error))
    if is_memory_error(error):
        return RequestError.of(ErrorKind.DEVICE_MEMORY, f"out of memory in {stage}")
    return RequestError.of(ErrorKind.MODEL_ERROR, describe(error))


def request_error(error: RequestError | MemoryError) -> RequestError:
    """The error of a request that our own code could not decode or encode."""
    if isinstance(error, RequestError):
        return error
    return RequestError.of(ErrorKind.DEVICE_MEMORY, "out of memory for this request")


def describe(error: BaseException) -> str:
    """Type and text of an error, cut to what a reply may carry."""
    if isinstance(error, ModelLeftError):
        return str(error)
    if isinstance(error, BdbQuit):
        return _QUIT if sys.stdin is not None and sys.stdin.isatty() else _NO_TERMINAL
    return f"{type(error).__name__}: {error}"[:ERROR_MESSAGE_CHARACTERS_MAX]


_QUIT = "the debugger was quit"
_NO_TERMINAL = (
    "the debugger got no commands: breakpoint() reads standard input, which is no terminal here; "
    "use it with `batchfleet dev`, `batchfleet models try` or batchfleet.testing.serve"
)


def failure_of(request: int, error: RequestError) -> Failure:
    """The protocol's word for a request that ended in `error`."""
    message = error.message[:ERROR_MESSAGE_CHARACTERS_MAX]
    return Failure(request, error.code, message, list(error.rows))


def merge_row_errors(errors: list[tuple[int, RequestError]]) -> RequestError:
    """One error for a request from those of its rows: the first one's, naming all of its kind."""
    first = errors[0][1]
    rows = tuple(row for row, error in errors if error.kind is first.kind)
    return RequestError.of(first.kind, first.message, rows=rows)
