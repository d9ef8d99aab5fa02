"""What a client raises by itself; what a reply carries is in `wire/errors.py`.

    BatchfleetError
    ├── WaitTimeoutError      no answer within the caller's own patience; the request goes on
    └── ClientClosedError     the client was closed, before or during the call

Neither ends the request: it goes on in the fleet.
"""

from ..broker.errors import OutOfMemoryError, UnwritableError
from ..wire.errors import BatchfleetError, ErrorKind, RequestError
from ..wire.keys import ModelKeys

_UNWRITABLE_RETRY_MS = 1000


class WaitTimeoutError(BatchfleetError):
    """No answer came within the time that the caller wanted to wait.

    The request goes on in the fleet: ask again by `result`, `poll` or `status`.
    """


class ClientClosedError(BatchfleetError):
    """The client was closed; requests that it had submitted go on in the fleet."""


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
    """What a router would answer, were the server able to take its words."""
    is_full = isinstance(error, OutOfMemoryError)
    kind = ErrorKind.BUSY if is_full else ErrorKind.UNAVAILABLE
    return RequestError.of(kind, str(error), retry_after_ms=_UNWRITABLE_RETRY_MS)


def not_picklable(client: object) -> TypeError:
    """The error of a client that somebody wants to send to another process, or to copy."""
    return TypeError(
        f"{type(client).__name__} holds connections of this process: it cannot be pickled or "
        "copied; make one in each process, or hand over its arguments"
    )
