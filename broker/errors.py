"""Server errors by what a caller does about them, and the translation from the client library.

ServerError
├── UnreachableError        no connection, or it broke: the outcome is unknown, ask again by id
├── OverlongAnswerError     the answer was longer than allowed, and is not read: ask for portions
├── RefusedError            the server answered with an error; `code` is its first word
│   ├── FencedError         the worker is not a live one: start over as another
│   ├── StaleRecordError    it was sent by an old deploy record: read that again
│   ├── NoGroupError        a stream or its group is gone
│   ├── TransientError      loading, electing, busy: back off and continue
│   │   └── MovedError      this connection leads to the wrong server: connect again
│   ├── UnwritableError     reading works, writing does not
│   │   └── OutOfMemoryError  the server is at maxmemory
│   ├── UnusableKeyError    a key has the wrong type: skip it
│   ├── NoScriptError       the server has forgotten a script: load it
│   └── DeniedError         wrong password or missing permission: stop

`CODES` is the one table of them; `docs/server-errors.md` is drawn from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import redis

from ..wire.errors import Remedy, ServerError


class UnreachableError(ServerError):
    """No connection, or it broke before the answer came: the outcome is unknown."""

    remedy = Remedy.WAIT


class OverlongAnswerError(ServerError):
    """The command was run, but its answer was too long and is discarded.

    A caller that sets `Command.bytes_max` asks again, for less.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the server's answer has more than {bytes_max} bytes")


class RefusedError(ServerError):
    """The server answered with an error; `code` is the first word of it, which is stable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"the server refused: {text}")
        self.code = code
        self.text = text


class FencedError(RefusedError):
    """The worker is not a live one any more."""

    remedy = Remedy.START_OVER


class StaleRecordError(RefusedError):
    """The deploy record is not the one that the command was sent by; nothing has happened."""

    remedy = Remedy.REREAD


class NoGroupError(RefusedError):
    """A stream or its consumer group does not exist."""

    remedy = Remedy.RECREATE


class TransientError(RefusedError):
    """The server cannot serve right now but will again."""

    remedy = Remedy.WAIT


class MovedError(TransientError):
    """Another server has it: the connection is opened again, by the address."""


class UnwritableError(RefusedError):
    """The server takes no writes right now; what it has can be read."""

    remedy = Remedy.KEEP


class OutOfMemoryError(UnwritableError):
    """The server is at its `maxmemory`."""


class UnusableKeyError(RefusedError):
    """A key has the wrong type or is in the wrong slot: somebody wrote it, or it is our bug."""

    remedy = Remedy.SET_ASIDE


class NoScriptError(RefusedError):
    """The server does not know a script; the executors load it and run the command again."""

    remedy = Remedy.LOAD


class DeniedError(RefusedError):
    """Credentials or permissions are wrong; trying again does not help."""

    remedy = Remedy.STOP


@dataclass(frozen=True, slots=True)
class CodeRow:
    """One code of the server: the error that it becomes, and what has happened."""

    error: type[RefusedError]
    meaning: str


CODES: dict[str, CodeRow] = {
    "FENCED": CodeRow(FencedError, "from our scripts: the worker is not a live one"),
    "STALE": CodeRow(StaleRecordError, "from our scripts: the deploy record has changed"),
    "NOGROUP": CodeRow(NoGroupError, "a stream or its group does not exist"),
    "UNBLOCKED": CodeRow(MovedError, "a blocking read was aborted: key deleted, or server demoted"),
    "READONLY": CodeRow(MovedError, "this server has become a replica"),
    "MOVED": CodeRow(MovedError, "another node of the cluster has the slot"),
    "ASK": CodeRow(MovedError, "the slot is moving to another node"),
    "TRYAGAIN": CodeRow(TransientError, "some keys of the command are moving to another node"),
    "CLUSTERDOWN": CodeRow(TransientError, "no node serves the slot"),
    "LOADING": CodeRow(TransientError, "the server has started and is loading its data"),
    "MASTERDOWN": CodeRow(TransientError, "a replica has lost its master"),
    "BUSY": CodeRow(TransientError, "a script of some client runs for too long"),
    "NOREPLICAS": CodeRow(UnwritableError, "fewer replicas than the server is told to require"),
    "MISCONF": CodeRow(UnwritableError, "the server cannot write its data to disk"),
    "OOM": CodeRow(OutOfMemoryError, "the server has reached maxmemory"),
    "NOAUTH": CodeRow(DeniedError, "the server requires a password"),
    "WRONGPASS": CodeRow(DeniedError, "wrong user or password, or the user is disabled"),
    "NOPERM": CodeRow(DeniedError, "the user may not run this command on this key"),
    "WRONGTYPE": CodeRow(UnusableKeyError, "a key holds another type"),
    "CROSSSLOT": CodeRow(UnusableKeyError, "the keys of one command are in different slots"),
    "EXECABORT": CodeRow(UnusableKeyError, "a transaction contained a command that was refused"),
    "NOSCRIPT": CodeRow(NoScriptError, "the server's script cache was flushed"),
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
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (redis.exceptions.ExecAbortError, "EXECABORT"),
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
        return UnreachableError(f"the connection is broken: {error}")
    return error


_NAMED_MAX = 3


def named(raw: Any, parts: Sequence[Any]) -> Any:
    """A missing right with the command and its keys or channels, which the server does not name.

    Any other answer to `parts` is returned as it is.
    """
    if not isinstance(raw, DeniedError) or raw.code != "NOPERM":
        return raw
    command, *targets = (part.decode() if isinstance(part, bytes) else str(part) for part in parts)
    if command == "EVALSHA":
        targets = targets[2 : 2 + int(targets[1])]
    elif command == "SCRIPT":
        targets = []
    elif command == "XREADGROUP":
        targets = targets[targets.index("STREAMS") + 1 :]
    elif command not in _ON_MANY:
        targets = targets[:1]
    named = ", ".join(targets[:_NAMED_MAX])
    return DeniedError(raw.code, f"{raw.text}: {command} on {named}" if named else raw.text)


_ON_MANY = ("UNLINK", "SSUBSCRIBE")


def refused(text: str) -> RefusedError:
    """The error for what a server says, which begins with its code."""
    return _with_code(text.split(" ", 1)[0], text)


def _with_code(code: str, text: str) -> RefusedError:
    row = CODES.get(code)
    return (RefusedError if row is None else row.error)(code, text)
