"""The twin's connections: what `broker/blocking.py` and `broker/looping.py` are for a server."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeVar

import hiredis

from ...broker.commands import Command, as_is, plain
from ...broker.errors import OverlongAnswerError, RefusedError, UnreachableError
from ...broker.interface import (
    COMMAND_TIMEOUT_S,
    AsyncExecutor,
    ChannelSubscription,
    Executor,
    OnAnswer,
    OnMessage,
    require_patience,
)
from ...wire.errors import ServerError
from .server import MemoryServer, Waiting

T = TypeVar("T")


def _size_of(raw: Any) -> int:
    if isinstance(raw, list):
        return sum(map(_size_of, raw))
    return len(raw) if isinstance(raw, bytes) else 0


class MemoryExecutor(Executor):
    """Runs commands one after the other, as `BlockingExecutor` does."""

    def __init__(self, server: MemoryServer, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._server = server
        self._timeout_s = timeout_s

    def run(self, command: Command[T]) -> T:
        """Run one command; errors are those of `Executor`."""
        raw = self._ask(command)
        if isinstance(raw, RefusedError):
            raise raw
        if command.bytes_max and _size_of(raw) > command.bytes_max:
            raise OverlongAnswerError(command.bytes_max)
        return command.read(raw)

    def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands in order; an error of the server stands in its command's place."""
        raws = [(command, self._ask(command)) for command in commands]
        return [raw if isinstance(raw, RefusedError) else c.read(raw) for c, raw in raws]

    def _ask(self, command: Command[Any]) -> Any:
        require_patience(command, self._timeout_s)
        answers: SimpleQueue[Any] = SimpleQueue()
        waiting = self._server.ask(command, answers.put)
        return answers.get_nowait() if waiting is None else self._wait(waiting, answers)

    def _wait(self, waiting: Waiting, answers: "SimpleQueue[Any]") -> Any:
        clock = self._server.clock
        broken_ms = clock.monotonic_ms() + self._timeout_s * 1000
        try:
            while True:
                left_ms = min(waiting.deadline_ms, broken_ms) - clock.monotonic_ms()
                try:
                    return answers.get(timeout=max(0.0, left_ms) / 1000)
                except Empty:
                    if clock.monotonic_ms() >= waiting.deadline_ms:
                        self._server.give_up(waiting)
                    elif clock.monotonic_ms() >= broken_ms:
                        break
        finally:
            self._server.forget(waiting)
        raise UnreachableError(f"no answer from the server: it said nothing for {self._timeout_s}")

    def close(self) -> None:
        """There is nothing to close; the executor may be used again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Caller:
    """Who gets an answer, and how."""

    future: "asyncio.Future[Any]"
    on_answer: OnAnswer


class MemoryLoopingExecutor:
    """Runs commands of many tasks, as `LoopingExecutor` does; answers come in a later tick."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._in_flight: set[_Caller] = set()
        self._is_closed = False
        self._was_reachable = False

    @property
    def was_reachable(self) -> bool:
        """Whether a command was ever sent."""
        return self._was_reachable

    async def run(self, command: Command[T]) -> T:
        """Run one command; errors are those of `AsyncExecutor`."""
        return command.read(_checked(await self._send(command)))

    async def run_packed(self, packed: bytes) -> Any:
        """Run a packed command; returns the raw answer."""
        return _checked(await self._send(plain(as_is, *_unpack(packed))))

    async def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run plain commands; a `ServerError` stands where one failed."""
        assert all(command.script is None for command in commands)
        raws = await asyncio.gather(*[self._send(command) for command in commands])
        return [
            raw if isinstance(raw, ServerError) else command.read(raw)
            for command, raw in zip(commands, raws, strict=True)
        ]

    def post(self, packed: bytes, future: "asyncio.Future[Any]", on_answer: OnAnswer) -> None:
        """Send a packed command without waiting; see `AsyncExecutor`."""
        self._post(plain(as_is, *_unpack(packed)), future, on_answer)

    def _send(self, command: Command[Any]) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._post(command, future, _resolve)
        return future

    def _post(
        self, command: Command[Any], future: "asyncio.Future[Any]", on_answer: OnAnswer
    ) -> None:
        if self._is_closed:
            raise UnreachableError("the executor was closed")
        self._was_reachable = True
        loop = future.get_loop()
        caller = _Caller(future, on_answer)
        self._in_flight.add(caller)
        waiting = self._server.ask(command, lambda raw: _later(loop, self._answer, caller, raw))
        if waiting is not None:
            future.add_done_callback(lambda _: self._server.forget(waiting))
            if waiting.deadline_ms < inf:
                left_ms = waiting.deadline_ms - self._server.clock.monotonic_ms()
                loop.call_later(left_ms / 1000, self._server.give_up, waiting)

    def _answer(self, caller: "_Caller", raw: Any) -> None:
        if caller in self._in_flight:
            self._in_flight.remove(caller)
            caller.on_answer(caller.future, raw)

    async def close(self) -> None:
        """Fail what is still in flight. May be called twice."""
        self._is_closed = True
        for caller in list(self._in_flight):
            self._answer(caller, UnreachableError("the executor was closed"))


def _later(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any) -> None:
    loop.call_soon_threadsafe(call, *arguments)


def _resolve(future: "asyncio.Future[Any]", raw: Any) -> None:
    if not future.done():
        future.set_result(raw)


def _checked(raw: Any) -> Any:
    if isinstance(raw, ServerError):
        raise raw
    return raw


def _unpack(packed: bytes) -> list[bytes]:
    """The parts of a command as it would go to a server."""
    reader = hiredis.Reader()
    reader.feed(packed)
    parts: list[bytes] = reader.gets()
    return parts


class MemorySubscription:
    """Sharded channels, as `Subscription` has them; belongs to the loop that calls `run`."""

    def __init__(self, server: MemoryServer, on_message: OnMessage) -> None:
        self._server = server
        self._on_message = on_message
        self._channels: dict[str, _Listener] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[None] | None = None

    def add(self, channel: str) -> None:
        """Subscribe, now or as soon as `run` is called."""
        if channel not in self._channels:
            self._channels[channel] = _Listener(self, channel)
            self._listen(channel)

    def remove(self, channel: str) -> None:
        """Unsubscribe."""
        listener = self._channels.pop(channel, None)
        if listener is not None:
            self._server.stop_listening(channel, listener)

    async def run(self) -> NoReturn:
        """Subscribe to all channels and receive until closed.

        Raises:
            UnreachableError: closed; run again to go on.
        """
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        try:
            for channel in self._channels:
                self._listen(channel)
            await self._end
        finally:
            self._loop = None
            for channel, listener in self._channels.items():
                self._server.stop_listening(channel, listener)
        raise UnreachableError("no answer from the server: closed by its owner")

    def _listen(self, channel: str) -> None:
        if self._loop is not None:
            self._loop.call_soon(self._hear, channel, None)
            self._server.listen(channel, self._channels[channel])

    def pass_on(self, channel: str, payload: bytes) -> None:
        """Take a message from whichever thread published it over to the loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hear, channel, payload)

    def _hear(self, channel: str, payload: bytes | None) -> None:
        if channel in self._channels:
            self._on_message(channel, payload)

    async def close(self) -> None:
        """End `run`. May be called twice."""
        if self._end is not None and not self._end.done():
            self._end.set_result(None)


@dataclass(frozen=True, slots=True)
class _Listener:
    """What the server calls for one channel of a subscription."""

    subscription: MemorySubscription
    channel: str

    def __call__(self, payload: bytes) -> None:
        self.subscription.pass_on(self.channel, payload)


@dataclass(frozen=True, slots=True)
class MemoryBroker:
    """A server inside this process as a `Broker`."""

    server: MemoryServer

    def connect(self, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Executor:  # noqa: ARG002 - there is no connection to name
        """A connection for one thread; see `Broker`."""
        return MemoryExecutor(self.server, timeout_s)

    def connect_looping(self, name: str) -> AsyncExecutor:  # noqa: ARG002 - as above
        """A connection for one event loop."""
        return MemoryLoopingExecutor(self.server)

    def subscribe(self, name: str, on_message: OnMessage) -> ChannelSubscription:  # noqa: ARG002
        """A connection for channels, of one event loop."""
        return MemorySubscription(self.server, on_message)
