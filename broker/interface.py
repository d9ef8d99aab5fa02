"""The interface of a broker: a value that makes three kinds of connections.

Two brokers offer them, held to one suite of tests: `RedisBroker`, a server, and `MemoryBroker`, its
twin inside one process (`testing/twin/`).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, Self, TypeVar

from ..wire.errors import SettingsError, checked
from .commands import Command

T = TypeVar("T")

COMMAND_TIMEOUT_S = 5.0
# How much longer a connection waits for an answer than the server is asked to wait, at least.
BLOCK_MARGIN_S = 2.0


def blocking_timeout_s(block_s: float) -> float:
    """The timeout of a connection on which the server is asked to wait for up to `block_s`."""
    return block_s + COMMAND_TIMEOUT_S


def require_patience(command: Command[Any], timeout_s: float) -> None:
    """Refuse a command whose answer would come after its connection has given up.

    Raises:
        SettingsError: the server may wait for longer than `timeout_s` allows.
    """
    if command.block_s and command.block_s + BLOCK_MARGIN_S > timeout_s:
        raise SettingsError(
            f"the server may wait {command.block_s:g} s before it answers, and the connection "
            f"gives up after {timeout_s:g} s: the answer would be lost"
        )


OnMessage = Callable[[str, bytes | None], None]
"""Gets channel and payload; None as payload says that the server has confirmed the channel."""


OnAnswer = Callable[["asyncio.Future[Any]", Any], None]
"""Gets a caller's future and the raw answer, or the `ServerError` that came instead."""


class Executor(Protocol):
    """Runs commands one after the other; belongs to one thread. Implementations inherit from it."""

    def run(self, command: Command[T]) -> T:
        """Run one command.

        Raises:
            UnreachableError: no answer.
            RefusedError: the server answered with an error.
            OverlongAnswerError: the answer is over the command's `bytes_max`.
            SettingsError: the command may wait in the server for longer than the connection does.
        """

    def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip; an error of the server stands in its command's place.

        Raises:
            UnreachableError: no answer.
        """

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in one round trip.

        Raises:
            UnreachableError: no answer.
            RefusedError: the first error, after all commands have been tried.
        """
        return [checked(answer) for answer in self.run_each(commands)]

    def close(self) -> None:
        """Close the connection; the executor may be used again and reconnects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncExecutor(Protocol):
    """Runs commands of many tasks; belongs to the event loop that uses it."""

    @property
    def was_reachable(self) -> bool:
        """Whether there ever was a connection: if so, its loss is probably temporary."""

    async def run(self, command: Command[T]) -> T:
        """Run one command.

        Raises:
            UnreachableError: no answer.
            RefusedError: the server answered with an error.
        """

    async def run_packed(self, packed: bytes) -> Any:
        """Run a packed command that is not a script; returns the raw answer. Errors as of `run`."""

    async def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run plain commands in one round trip; a `ServerError` stands where one failed."""

    def post(self, packed: bytes, future: "asyncio.Future[Any]", on_answer: OnAnswer) -> None:
        """Send a packed command without waiting; callers bound how many they send.

        `on_answer` resolves the future, or does not; it may not send in turn.

        Raises:
            UnreachableError: closed.
        """

    async def close(self) -> None:
        """Close the connection and fail what is still in flight. May be called again."""


class ChannelSubscription(Protocol):
    """Sharded channels; messages may get lost."""

    def add(self, channel: str) -> None:
        """Subscribe, now or as soon as there is a connection."""

    def remove(self, channel: str) -> None:
        """Unsubscribe."""

    async def run(self) -> NoReturn:
        """Connect, subscribe to all channels and receive until the connection breaks.

        Raises:
            UnreachableError: no connection, or it broke; run again to continue.
            RefusedError: the server does not let us subscribe.
        """

    async def close(self) -> None:
        """Close the connection; `run` ends with `UnreachableError`. May be called again."""


class Broker(Protocol):
    """Makes connections; a value that any thread may use. None of these calls connects yet."""

    def connect(self, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Executor:
        """A connection for one thread.

        Args:
            name: shown in the server's list of connections.
            timeout_s: how long one answer may take, time spent blocked in the server included.
        """

    def connect_looping(self, name: str) -> AsyncExecutor:
        """A connection for one event loop."""

    def subscribe(self, name: str, on_message: OnMessage) -> ChannelSubscription:
        """A connection for channels, of one event loop."""
