"""The synchronous executor: one connection, owned by one thread.

The client library makes the connection (address, TLS, credentials); after its handshake commands
and answers pass between the socket and the parser directly, because going through the library costs
a look at each of the dozens of arguments of a batch, and at each answer.
"""

import select
import socket
from collections.abc import Sequence
from math import inf
from typing import Any, TypeVar

import hiredis
import redis

from .commands import Command
from .connections import blocking_connection, introduction
from .errors import (
    MovedError,
    NoScriptError,
    OverlongAnswerError,
    RefusedError,
    UnreachableError,
    named,
    raise_translated,
    refused,
)
from .interface import COMMAND_TIMEOUT_S, Executor, require_patience

T = TypeVar("T")

_READ_BYTES = 64 * 1024
_MORE_NEEDED = object()


class BlockingExecutor(Executor):
    """Runs commands one after the other on a connection of its own.

    A broken connection is reported as `UnreachableError`; the next command reconnects. What
    became of the command is unknown then; every script is safe to repeat.
    """

    def __init__(self, url: str, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        # Any: most methods of the library's connections carry no types.
        self._connection: Any = blocking_connection(url, timeout_s)
        self._name = name
        self._timeout_s = timeout_s
        self._link: _BlockingLink | None = None

    def run(self, command: Command[T]) -> T:
        """Run one command; see `Executor`."""
        require_patience(command, self._timeout_s)
        raw = self._exchange([command.parts], command.bytes_max)[0]
        if command.script is not None and isinstance(raw, NoScriptError):
            loaded = self._exchange([("SCRIPT", "LOAD", command.script.source)])[0]
            if isinstance(loaded, RefusedError):
                raise loaded
            raw = self._exchange([command.parts])[0]
        if isinstance(raw, RefusedError):
            raise raw
        return command.read(raw)

    def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip; see `Executor`."""
        for command in commands:
            require_patience(command, self._timeout_s)
        raws = self._exchange([command.parts for command in commands]) if commands else []
        return [self._settle(c, raw) for c, raw in zip(commands, raws, strict=True)]

    def _settle(self, command: Command[Any], raw: Any) -> Any:
        if command.script is not None and isinstance(raw, NoScriptError):
            try:
                return self.run(command)
            except RefusedError as error:
                return error
        return raw if isinstance(raw, RefusedError) else command.read(raw)

    def _exchange(self, commands: Sequence[Sequence[Any]], bytes_max: int = 0) -> list[Any]:
        """Send commands and return the raw answers; an error of the server is a `RefusedError`.

        Where `bytes_max` is not 0, no more is read of them all.
        """
        packed = b"".join([hiredis.pack_command(tuple(parts)) for parts in commands])
        try:
            link = self._link
            if link is None or link.was_cut:
                link = self._open()
            answers = link.exchange(packed, len(commands), bytes_max or inf)
        except OverlongAnswerError:
            self.close()
            raise
        except (redis.RedisError, hiredis.HiredisError, OSError) as error:
            self.close()
            if isinstance(error, hiredis.HiredisError):
                raise UnreachableError(f"the server does not speak RESP: {error}") from error
            raise_translated(error)
        if any(isinstance(answer, MovedError) for answer in answers):
            self.close()
        return [named(raw, parts) for raw, parts in zip(answers, commands, strict=True)]

    def _open(self) -> "_BlockingLink":
        self.close()  # if it was cut, since the library would keep it
        self._connection.connect()
        # The library offers no public way to its socket; the tests pin that this one works.
        link = _BlockingLink(self._connection._sock)  # noqa: SLF001
        link.exchange(hiredis.pack_command(introduction(self._name)), 1)
        self._link = link
        return link

    def close(self) -> None:
        """Close the connection; the executor may be used again and reconnects."""
        self._link = None
        self._connection.disconnect()


class _BlockingLink:
    """A live connection after its handshake. It does not own the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._parser = hiredis.Reader(notEnoughData=_MORE_NEEDED, replyError=refused)
        self._bytes_read = 0  # of the present exchange

    @property
    def was_cut(self) -> bool:
        """Whether the server has closed it while it was idle, as its `timeout` may require.

        Nothing was sent since, so no outcome is unknown and no error is raised: the executor
        reconnects. Any other data that comes before a command is sent is no answer either.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def exchange(self, packed: bytes, count: int, bytes_max: float = inf) -> list[Any]:
        """Send packed commands and wait for their answers.

        Raises:
            OverlongAnswerError: they are over `bytes_max`; the connection is of no more use.
            OSError: the connection broke, or said nothing for too long.
            hiredis.HiredisError: what came is no answer.
        """
        self._socket.sendall(packed)
        self._bytes_read = 0
        return [self._next_answer(bytes_max) for _ in range(count)]

    def _next_answer(self, bytes_max: float) -> Any:
        while (answer := self._parser.gets()) is _MORE_NEEDED:
            chunk = self._socket.recv(_READ_BYTES)
            if not chunk:
                raise ConnectionResetError("the server closed the connection")
            self._bytes_read += len(chunk)
            if self._bytes_read > bytes_max:
                raise OverlongAnswerError(int(bytes_max))
            self._parser.feed(chunk)
        return answer
