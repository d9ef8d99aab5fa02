"""What an exception of a model's code means for the request whose row it was about.

A model's code may raise anything, and an exception is made of a model's code as well: its text, its
class, its causes. So errors are told apart by their type alone (`isinstance` would ask a
`__class__`), and their words come through `wire/texts.py`.
"""

import re
import signal
import sys
from bdb import BdbQuit
from contextlib import suppress
from typing import Any, Final, TypeGuard

from ...models.traces import with_own_frames
from ...service.clock import Clock
from ...service.logs import OncePerKind
from ...wire.errors import BatchfleetError, ErrorKind, RequestError
from ...wire.limits import ERROR_MESSAGE_CHARACTERS_MAX, ROWS_MAX
from ...wire.texts import kind_name, safe_text, text_of
from ..link.protocol import Failure
from .kind_logger import last_frame, place_of

# Our own errors name what there is instead, or quote another program.
_OWN_WORDS_MAX: Final = 4000
_DIGITS: Final = re.compile(r"[0-9]+")
# What a model's code raises where it wants the program to end; every other exception, whatever its
# class, is an error of the model like any other.
_LEAVING: Final = (SystemExit, KeyboardInterrupt)


class ModelLeftError(BaseException):
    """A model's code raised what is meant to end a program, such as `SystemExit`.

    No `Exception`, like its cause: it ends the device process. Its words are the cause's.
    """


def raise_if_model_left(error: BaseException, stage: str, logger: Any) -> None:
    """Of all that a model's code may raise, let through what asks for the end of the process.

    Raises:
        ModelLeftError: it does; the log names the model and its line.
    """
    if is_kind(error, ModelLeftError):  # of a stage inside this one, which has told
        raise error
    if is_kind(error, *_LEAVING):
        logger.critical("model_left", stage=stage, exc_info=with_own_frames(error))
        raise ModelLeftError(describe(error)) from error


def is_kind(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether an exception is of one of these types, without running code of its own."""
    return issubclass(type(error), kinds)


def is_failure(result: Any) -> TypeGuard[RequestError]:
    """Whether a row's result is the error that it ended in."""
    return issubclass(type(result), RequestError)


class FaultLog:
    """Tells a model's author of faults that leave no trace of their own.

    Each kind is logged once and then counted. Nothing of what callers sent is in the lines. Safe to
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

    def note_refusal(self, error: BaseException) -> None:
        """Log where `preprocess` raised a `ValueError`, which may be a bug as well as a refusal."""
        for place, count in self._refusals.summary().items():
            self._logger.warning("rows_refused", at=place, count=count)
        place = place_of(error)
        if self._refusals.admit(place):
            self._logger.debug("row_refused", exc_info=with_own_frames(error))
            self._logger.warning("rows_refused", at=place, error_type=kind_name(error), count=1)


def is_memory_error(error: BaseException) -> bool:
    """Whether memory, of the host or of the device, was too small.

    torch is asked only where a model has imported it; this module must not bring it in.
    """
    if is_kind(error, MemoryError):
        return True
    with suppress(Exception):  # what a model put in torch's place may answer with anything
        return issubclass(type(error), sys.modules["torch"].OutOfMemoryError)
    return False


def preprocess_error(error: BaseException, logger: Any, fault_log: FaultLog) -> RequestError:
    """The error of a request whose row `preprocess` refused or failed on; see `model_error`."""
    if is_kind(error, ValueError):
        fault_log.note_refusal(error)
        text = text_of(error) or "the model refuses this row"
        return RequestError.of(ErrorKind.BAD_INPUTS, text + _hint(error))
    return model_error(error, "preprocess", logger)


def model_error(error: BaseException, stage: str, logger: Any) -> RequestError:
    """The error of a request on which model code raised `error`; the trace goes to the log only.

    `logger` is a `KindLogger`, here and below: callers bring such errors about at any rate.

    Raises:
        ModelLeftError: the code asked for the end of the process.
    """
    raise_if_model_left(error, stage, logger)
    if is_failure(error):
        return cleaned(error)
    if is_kind(error, BdbQuit):
        logger.warning("debugger_quit", stage=stage, reason=describe(error))
        return RequestError.of(ErrorKind.MODEL_ERROR, describe(error))
    logger.error("model_raised", stage=stage, exc_info=error)
    if is_memory_error(error):
        return RequestError.of(ErrorKind.DEVICE_MEMORY, f"out of memory in {stage}")
    return RequestError.of(ErrorKind.MODEL_ERROR, describe(error))


def cleaned(error: RequestError) -> RequestError:
    """An error that a model's code may have made, as one of ours: it may hold anything."""
    kind, message = None, None
    rows: tuple[Any, ...] = ()
    with suppress(Exception):  # in a derived class these may be code
        kind, message, rows = error.kind, error.message, tuple(error.rows)
    if type(kind) is not ErrorKind:
        return RequestError.of(ErrorKind.MODEL_ERROR, describe(error))
    rows = tuple(row for row in rows if type(row) is int and 0 <= row < ROWS_MAX)
    return RequestError.of(kind, text_of(message), rows=rows)


def output_error(error: BaseException, logger: Any) -> RequestError:
    """The error of a request whose outputs could not be encoded: objects of a model's, code too.

    Raises:
        ModelLeftError: the code asked for the end of the process.
    """
    raise_if_model_left(error, "encode", logger)
    if is_failure(error):
        return cleaned(error)
    if is_memory_error(error):
        return RequestError.of(ErrorKind.DEVICE_MEMORY, "out of memory for this answer")
    words = text_of(error) if is_kind(error, ValueError, TypeError) else describe(error)
    return RequestError.of(ErrorKind.BAD_OUTPUT, f"an output cannot be put on the wire: {words}")


def request_error(error: BaseException, stage: str, logger: Any) -> RequestError:
    """The error of a request that could not be decoded or prepared, by whosever code.

    Attributes of a model's class are code of its own; so what is unforeseen counts as the model's.

    Raises:
        ModelLeftError: the code asked for the end of the process.
    """
    if is_failure(error):
        return cleaned(error)
    if is_kind(error, MemoryError):
        return RequestError.of(ErrorKind.DEVICE_MEMORY, "out of memory for this request")
    return model_error(error, stage, logger)


def describe(error: BaseException) -> str:
    """Type and text of an error, and what to do about it; cut to what a reply may carry."""
    if is_kind(error, ModelLeftError):
        return text_of(error)
    if is_kind(error, BdbQuit):
        return _NO_COMMANDS if _has_no_terminal() else _QUIT
    text = f"{kind_name(error)}: {text_of(error)}"
    return text[:ERROR_MESSAGE_CHARACTERS_MAX] + _hint(error)


def message_of(error: BaseException) -> str:
    """The words of an error of ours alone, those of any other with its type."""
    ours = is_kind(error, BatchfleetError)
    return text_of(error, _OWN_WORDS_MAX) if ours else describe(error)


def _hint(error: BaseException) -> str:
    """What to do about errors that a worker's surroundings bring about."""
    if is_kind(error, EOFError) and _has_no_terminal():
        return f" (input() {_NO_INPUT})"
    last = last_frame(error)
    if last is not None and last.tb_frame.f_code is signal.signal.__code__:
        return _SIGNALS
    return ""


def _has_no_terminal() -> bool:
    """Whether input cannot be typed here."""
    try:
        return not sys.stdin.isatty()
    except Exception:  # noqa: BLE001  it may be None, closed, or whatever a model put in its place
        return True


_QUIT = "the debugger was quit"
_NO_INPUT = (
    "reads standard input, which is no terminal here; "
    "use it with `batchfleet dev`, `batchfleet models try` or batchfleet.testing.serve"
)
_NO_COMMANDS = f"the debugger received no commands: breakpoint() {_NO_INPUT}"
_SIGNALS = (
    " (a model's code does not run on the main thread, and the worker handles signals: "
    'leave them alone, see docs/models.md, "Signals")'
)


def failure_of(request: int, error: RequestError) -> Failure:
    """The protocol's word for a request that ended in `error`."""
    return Failure(request, error.code, safe_text(error.message), list(error.rows))


def merge_row_errors(errors: list[tuple[int, RequestError]]) -> RequestError:
    """One error for a request from those of its rows: the first one's, naming all of its kind."""
    first = errors[0][1]
    rows = tuple(row for row, error in errors if error.kind is first.kind)
    return RequestError.of(first.kind, first.message, rows=rows)
