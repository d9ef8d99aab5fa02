"""The synchronous executor: one connection, owned by one thread."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from ..wire.errors import ServerError
from .commands import Command
from .connections import blocking_connection
from .errors import RefusedError, raise_translated, translate
from .interface import COMMAND_TIMEOUT_S

T = TypeVar("T")


class BlockingExecutor:
    """Runs commands one after the other on a connection of its own.

    A broken connection is reported as `UnreachableError` and made anew by the next command. What
    became of the command is unknown then; every script is safe to repeat.
    """

    def __init__(self, url: str, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        # Any: most methods of the library's connections carry no types.
        self._connection: Any = blocking_connection(url, timeout_s, name)

    def run(self, command: Command[T]) -> T:
        """Run one command.

        Raises:
            UnreachableError: no answer.
            RefusedError: the server answered with an error.
        """
        raw = self._exchange([command.parts])[0]
        if isinstance(raw, redis.exceptions.NoScriptError) and command.script is not None:
            self._exchange([("SCRIPT", "LOAD", command.script.source)])
            raw = self._exchange([command.parts])[0]
        if isinstance(raw, Exception):
            raise_translated(raw)
        return command.read(raw)

    def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip; an error of the server stands in its command's place.

        Raises:
            UnreachableError: no answer.
        """
        raws = self._exchange([command.parts for command in commands]) if commands else []
        return [self._settle(c, raw) for c, raw in zip(commands, raws, strict=True)]

    def _settle(self, command: Command[Any], raw: Any) -> Any:
        if isinstance(raw, redis.exceptions.NoScriptError) and command.script is not None:
            try:
                return self.run(command)
            except RefusedError as error:
                return error
        if isinstance(raw, Exception):
            translated = translate(raw)
            assert isinstance(translated, ServerError)
            return translated
        return command.read(raw)

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip.

        Raises:
            UnreachableError: no answer.
            RefusedError: the first error, after all commands have been tried.
        """
        results = self.run_each(commands)
        for result in results:
            if isinstance(result, ServerError):
                raise result
        return results

    def _exchange(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        connection = self._connection
        try:
            if len(parts) == 1:
                connection.send_command(*parts[0])
            else:
                connection.send_packed_command(connection.pack_commands(parts))
            return [self._read_answer() for _ in parts]
        except (redis.RedisError, OSError) as error:
            connection.disconnect()
            raise_translated(error)

    def _read_answer(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error

    def close(self) -> None:
        """Close the connection; the executor may be used again and connects anew."""
        self._connection.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
