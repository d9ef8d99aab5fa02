"""Server errors by what a caller does about them, and the translation from the client library.

ServerError
├── UnreachableError      no connection, or it broke: the outcome is unknown, ask again by id
├── RefusedError          the server answered with an error; `code` is its first word
│   ├── FencedError       the worker is not among the living: start over as another
│   ├── NoGroupError      a stream or its group is gone
│   ├── OutOfMemoryError  the server is at maxmemory
│   ├── TransientError    loading, failing over, out of replicas: back off and go on
│   └── DeniedError       wrong password or missing permission: stop
"""

from typing import NoReturn

import redis

from ..wire.errors import ServerError


class UnreachableError(ServerError):
    """No connection, or it broke before the answer came: the outcome is unknown."""


class RefusedError(ServerError):
    """The server answered with an error; `code` is the first word of it, which is stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"the server refused: {text}")
        self.code = code


class FencedError(RefusedError):
    """The worker is not among the living any more."""


class NoGroupError(RefusedError):
    """A stream or its consumer group does not exist."""


class OutOfMemoryError(RefusedError):
    """The server is at its `maxmemory`."""


class TransientError(RefusedError):
    """The server cannot serve right now but will again."""


class DeniedError(RefusedError):
    """Credentials or permissions are wrong; trying again does not help."""


_CLASS_OF_CODE: dict[str, type[RefusedError]] = {
    "FENCED": FencedError,
    "NOGROUP": NoGroupError,
    "OOM": OutOfMemoryError,
    **dict.fromkeys(
        (
            "LOADING",
            "BUSY",
            "UNBLOCKED",
            "READONLY",
            "MASTERDOWN",
            "NOREPLICAS",
            "MISCONF",
            "CLUSTERDOWN",
            "TRYAGAIN",
        ),
        TransientError,
    ),
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "NOPERM"), DeniedError),
}

# The library strips the first word from errors that it has classes for.
_CODE_OF_CLASS: tuple[tuple[type[redis.RedisError], str], ...] = (
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.AuthenticationError, "WRONGPASS"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
)


def raise_translated(error: BaseException) -> NoReturn:
    """Raise the batchfleet error for one of the client library's, or `error` itself."""
    translated = translate(error)
    if translated is error:
        raise error
    raise translated from error


def translate(error: BaseException) -> BaseException:
    """The batchfleet error for one of the client library's; others come back unchanged."""
    for cls, code in _CODE_OF_CLASS:
        if isinstance(error, cls):
            return _with_code(code, str(error))
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return UnreachableError(f"no answer from the server: {error}")
    if isinstance(error, redis.ResponseError):
        # The library strips the code `ERR`, and no other, from errors that it has no class for.
        text = str(error)
        return refused(text if text.split(" ", 1)[0].isupper() else f"ERR {text}")
    if isinstance(error, redis.RedisError):
        return UnreachableError(f"the connection is of no further use: {error}")
    return error


def refused(text: str) -> RefusedError:
    """The error for what a server says, which begins with its code."""
    return _with_code(text.split(" ", 1)[0], text)


def _with_code(code: str, text: str) -> RefusedError:
    cls = _CLASS_OF_CODE.get(code, RefusedError)
    return cls(code, text)
