"""Errors that a client raises itself; errors in replies are in `wire/errors.py`.

    BatchfleetError
    ├── WaitTimeoutError      no reply within the time that the caller waits
    └── ClientClosedError     the client was closed, before or during the call

Neither ends the request: it is still open in the fleet.
"""

from ..broker.errors import OutOfMemoryError, UnwritableError
from ..wire.errors import BatchfleetError, ErrorKind, RequestError
from ..wire.keys import ModelKeys

_UNWRITABLE_RETRY_MS = 1000


class WaitTimeoutError(BatchfleetError):
    """No reply came within the time that the caller waited.

    The request is still open: use `result`, `poll` or `status` with the same id.
    """


class ClientClosedError(BatchfleetError):
    """The client was closed; requests that it had submitted are still open."""


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
        f"{request_id} finished as {status}; its reply was already taken or has expired",
    )


def unwritable(error: UnwritableError) -> RequestError:
    """The error that a router would reply with if the server accepted writes."""
    is_full = isinstance(error, OutOfMemoryError)
    kind = ErrorKind.BUSY if is_full else ErrorKind.UNAVAILABLE
    return RequestError.of(kind, str(error), retry_after_ms=_UNWRITABLE_RETRY_MS)


def not_picklable(client: object) -> TypeError:
    """The error of pickling or copying a client."""
    return TypeError(
        f"{type(client).__name__} holds connections of this process: it cannot be pickled or "
        "copied; create one in each process, or pass on its arguments"
    )
