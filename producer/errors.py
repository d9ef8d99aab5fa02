"""Errors that a client raises by itself; those that a reply carries are in `wire/errors.py`.

    BatchfleetError
    ├── WaitTimeoutError      no answer within the caller's own time-out
    └── ClientClosedError     the client was closed, before or during the call

Neither ends the request: it stays open in the fleet.
"""

from ..broker.errors import OutOfMemoryError, UnwritableError
from ..wire.errors import BatchfleetError, ErrorKind, RequestError
from ..wire.keys import ModelKeys

_UNWRITABLE_RETRY_MS = 1000


class WaitTimeoutError(BatchfleetError):
    """No answer came within the time that the caller wanted to wait.

    The request stays open: ask again by `result`, `poll` or `status`.
    """


class ClientClosedError(BatchfleetError):
    """The client was closed; requests that it had submitted stay open in the fleet."""


def unknown_model(keys: ModelKeys, tenant: str) -> RequestError:
    """The error of a request whose model has no ingress stream for this tenant."""
    return RequestError.of(
        ErrorKind.UNKNOWN_MODEL,
        f"{keys.model} is not deployed in namespace {keys.namespace} for tenant {tenant}; "
        f"`batchfleet deploy {keys.model}/VERSION`",
    )


def reply_gone(request_id: str, status: str) -> RequestError:
    """The error of a request that is finished, but whose reply is not there any more."""
    return RequestError.of(
        ErrorKind.UNKNOWN_REQUEST,
        f"{request_id} finished as {status}; its reply was handed over or has expired",
    )


def unwritable(error: UnwritableError) -> RequestError:
    """What a router would answer if the server could store its reply."""
    is_full = isinstance(error, OutOfMemoryError)
    kind = ErrorKind.BUSY if is_full else ErrorKind.UNAVAILABLE
    return RequestError.of(kind, str(error), retry_after_ms=_UNWRITABLE_RETRY_MS)


def not_picklable(client: object) -> TypeError:
    """The error of pickling or copying a client."""
    return TypeError(
        f"{type(client).__name__} holds connections of this process: it cannot be pickled or "
        "copied; make one in each process, or hand over its arguments"
    )
