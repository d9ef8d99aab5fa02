"""What an exception of a model's code means for the request whose row it was about."""

import sys
from typing import Any

from ...models.traces import with_own_frames
from ...wire.errors import ErrorKind, RequestError
from ...wire.limits import ERROR_MESSAGE_CHARACTERS_MAX
from ..protocol import Failure


def is_memory_error(error: BaseException) -> bool:
    """Whether memory, of the host or of the device, was too small.

    torch is asked only where a model has imported it; this module must not bring it in.
    """
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, getattr(torch, "OutOfMemoryError", ()))
    )


def preprocess_error(error: Exception, logger: Any) -> RequestError:
    """The error of a request whose row `preprocess` refused or failed on."""
    if isinstance(error, ValueError):
        logger.debug("row_refused", exc_info=with_own_frames(error))
        return RequestError.of(ErrorKind.BAD_INPUTS, str(error) or "the model refuses this row")
    return model_error(error, "preprocess", logger)


def model_error(error: Exception, stage: str, logger: Any) -> RequestError:
    """The error of a request on which model code raised `error`; the trace goes to the log only."""
    if isinstance(error, RequestError):
        return error
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
    return f"{type(error).__name__}: {error}"[:ERROR_MESSAGE_CHARACTERS_MAX]


def failure_of(request: int, error: RequestError) -> Failure:
    """The protocol's word for a request that ended in `error`."""
    message = error.message[:ERROR_MESSAGE_CHARACTERS_MAX]
    return Failure(request, error.code, message, list(error.rows))


def merge_row_errors(errors: list[tuple[int, RequestError]]) -> RequestError:
    """One error for a request from those of its rows: the first one's, naming all of its kind."""
    first = errors[0][1]
    rows = tuple(row for row, error in errors if error.kind is first.kind)
    return RequestError.of(first.kind, first.message, rows=rows)
