"""The asyncio executor: one connection, any number of callers, commands of one tick in one write.

The client library makes the connection (address, TLS, credentials); after its handshake a protocol
of ours takes the transport over, because going through the library's streams costs several times
the CPU of a request: answers go straight from the parser to the futures of their callers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import hiredis
import redis
import redis.asyncio

from ..wire.errors import ServerError, checked
from .commands import Command
from .connections import introduction, looping_connection
from .errors import (
    DeniedError,
    MovedError,
    NoScriptError,
    RefusedError,
    UnreachableError,
    named,
    raise_translated,
    refused,
)
from .interface import COMMAND_TIMEOUT_S, AsyncExecutor, ChannelSubscription, OnAnswer, OnMessage
from .packing import head_of, pack

T = TypeVar("T")

_Caller = tuple["asyncio.Future[Any]", OnAnswer]

_IN_FLIGHT_MAX = 10_000
_WRITE_BYTES = 256 * 1024
_CLOSE_TIMEOUT_S = 5.0
_MORE_NEEDED = object()


class _Link(asyncio.Protocol):
    """A live connection after its handshake. Owned by an executor or a subscription.

    `on_answer` gets each answer in order; an error of the server is a `RefusedError`. `on_lost`
    is called once, when the connection is gone.
    """

    def __init__(
        self, on_answer: Callable[[Any], None], on_lost: Callable[[UnreachableError], None]
    ) -> None:
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._parser = hiredis.Reader(notEnoughData=_MORE_NEEDED, replyError=refused)
        self._reason: BaseException | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._is_writable = True
        self._on_writable: Callable[[], None] | None = None
        self.gone = asyncio.Event()

    def take_over(self, connection: redis.asyncio.Connection) -> None:
        """Receive what comes on `connection` from now on; nothing may be in flight.

        Raises:
            UnreachableError: it is closed already.
        """
        # The library offers no public way to its transport; a test pins that this one works.
        writer = connection._writer  # noqa: SLF001
        if writer is None or writer.transport.is_closing():
            raise UnreachableError("the connection broke right after it was opened")
        self._transport = writer.transport
        writer.transport.set_protocol(self)

    @property
    def is_writable(self) -> bool:
        """Whether the transport wants more; if not, `call_when_writable`."""
        return self._is_writable

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        """Call once when the transport wants more."""
        self._on_writable = callback

    def write(self, packed: bytes) -> None:
        """Send bytes; they are lost when the connection is."""
        assert self._transport is not None
        self._transport.write(packed)

    def break_off(self, reason: BaseException) -> None:
        """Drop the connection; `on_lost` follows in a later tick."""
        self._reason = self._reason or reason
        assert self._transport is not None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came from the server."""
        parser, on_answer = self._parser, self._on_answer
        try:
            parser.feed(data)
            while (answer := parser.gets()) is not _MORE_NEEDED:
                on_answer(answer)
        except hiredis.ProtocolError as error:
            self.break_off(error)

    def pause_writing(self) -> None:
        """The transport has enough for now."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """The transport has sent what it had."""
        self._is_writable = True
        callback, self._on_writable = self._on_writable, None
        if callback is not None:
            callback()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        reason = self._reason or exc or "the server closed the connection"
        self.gone.set()
        self._on_lost(UnreachableError(f"no answer from the server: {reason}"))


async def _open_link(connection: redis.asyncio.Connection, link: _Link, name: str) -> None:
    try:
        # It does not notice the loss of a transport that was taken over.
        await connection.disconnect(nowait=True)
        await connection.connect()
        await connection.send_command(*introduction(name))
        with suppress(redis.ResponseError):
            await connection.read_response()
    except (redis.RedisError, OSError) as error:
        raise_translated(error)
    link.take_over(connection)


async def _close_link(connection: redis.asyncio.Connection, link: _Link | None) -> None:
    if link is not None:
        link.break_off(UnreachableError("closed by its owner"))
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await link.gone.wait()
    await connection.disconnect(nowait=True)


def _resolve(future: asyncio.Future[Any], raw: Any) -> None:
    if not future.done():
        future.set_result(raw)


def _fail(callers: Iterable[_Caller], error: ServerError) -> None:
    for future, on_answer in callers:
        on_answer(future, error)


class LoopingExecutor(AsyncExecutor):
    """Runs commands of many tasks on one connection. Belongs to the event loop that uses it.

    A broken connection fails the commands in flight with `UnreachableError`; the next command
    reconnects. A server that leaves commands unanswered for `timeout_s` counts as broken.
    """

    def __init__(self, url: str, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._connection = looping_connection(url, timeout_s)
        self._name = name
        self._timeout_s = timeout_s
        self._outbox: deque[tuple[bytes, _Caller]] = deque()
        self._in_flight: deque[_Caller] = deque()
        self._room = asyncio.Semaphore(_IN_FLIGHT_MAX)
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_flush_due = False
        self._watchdog: asyncio.TimerHandle | None = None
        # Commands in the last write: a caller who is alone need not wait for others in its tick.
        self._written = 1
        self._answers = 0
        self._is_closed = False
        self._was_reachable = False

    @property
    def was_reachable(self) -> bool:
        """Whether there ever was a connection: if so, its loss is probably temporary."""
        return self._was_reachable

    async def run(self, command: Command[T]) -> T:
        """Run one command; see `AsyncExecutor`."""
        packed, script = pack(command.parts), command.script
        async with self._room:
            raw = await self._send(packed)
            if script is not None and isinstance(raw, NoScriptError):
                load = ("SCRIPT", "LOAD", script.source)
                checked(named(await self._send(pack(load)), load))
                raw = await self._send(packed)
        return command.read(checked(named(raw, command.parts)))

    async def run_packed(self, packed: bytes) -> Any:
        """Run a packed command; see `AsyncExecutor`."""
        async with self._room:
            raw = await self._send(packed)
            return checked(named(raw, head_of(packed)) if isinstance(raw, DeniedError) else raw)

    async def run_each(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run plain commands in one round trip; see `AsyncExecutor`."""
        assert all(command.script is None for command in commands)
        futures = [self._send(pack(command.parts)) for command in commands]
        raws = await asyncio.gather(*futures)
        return [
            named(raw, command.parts) if isinstance(raw, ServerError) else command.read(raw)
            for command, raw in zip(commands, raws, strict=True)
        ]

    def _send(self, packed: bytes) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(packed, future, _resolve)
        return future

    def post(self, packed: bytes, future: asyncio.Future[Any], on_answer: OnAnswer) -> None:
        """Send a packed command without waiting; see `AsyncExecutor`.

        It is dropped where the future is done before it is written.
        """
        if self._is_closed:
            raise UnreachableError("the executor was closed")
        self._outbox.append((packed, (future, on_answer)))
        if not self._in_flight and self._written == 1:
            self._flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            future.get_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write what has gathered, as far as the transport takes it."""
        self._is_flush_due = False
        link, outbox = self._link, self._outbox
        if not outbox or self._is_closed:
            return
        if link is None:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect(), name="batchfleet connect")
            return
        if self._watchdog is None:
            self._watch()
        while outbox and link.is_writable:
            link.write(self._next_write())
        if outbox:
            link.call_when_writable(self._flush)

    def _next_write(self) -> bytes:
        """Move commands from the outbox into flight, up to about `_WRITE_BYTES`."""
        parts: list[bytes] = []
        size = 0
        while self._outbox and size < _WRITE_BYTES:
            packed, caller = self._outbox.popleft()
            if caller[0].done():
                continue  # it has gone, and nothing was sent yet
            self._in_flight.append(caller)
            parts.append(packed)
            size += len(packed)
        self._written = len(parts)
        return b"".join(parts)

    async def _connect(self) -> None:
        link = _Link(self._on_answer, self._on_lost)
        try:
            await _open_link(self._connection, link, self._name)
        except ServerError as error:
            self._connecting = None
            _fail((caller for _, caller in self._outbox), error)
            self._outbox.clear()
            return
        self._link, self._connecting = link, None
        self._was_reachable = True
        self._flush()

    def _on_answer(self, raw: Any) -> None:
        self._answers += 1
        future, on_answer = self._in_flight.popleft()
        on_answer(future, raw)
        if isinstance(raw, MovedError) and self._link is not None:
            self._link.break_off(raw)

    def _on_lost(self, error: UnreachableError) -> None:
        self._link = None
        _fail(self._in_flight, error)
        self._in_flight.clear()
        if self._outbox and not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _watch(self) -> None:
        seen = self._answers
        self._watchdog = asyncio.get_running_loop().call_later(self._timeout_s, self._bark, seen)

    def _bark(self, seen: int) -> None:
        """Break a connection that answered nothing since the watch began."""
        self._watchdog = None
        if self._link is None or not self._in_flight:
            return
        if self._answers == seen:
            self._link.break_off(TimeoutError(f"it said nothing for {self._timeout_s} s"))
        else:
            self._watch()

    async def close(self) -> None:
        """Close the connection and fail what is still in flight. May be called again."""
        self._is_closed = True
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        callers = [*self._in_flight, *(caller for _, caller in self._outbox)]
        _fail(callers, UnreachableError("the executor was closed"))
        self._in_flight.clear()
        self._outbox.clear()
        await _close_link(self._connection, self._link)


class Subscription(ChannelSubscription):
    """Sharded channels on a connection of their own; messages may get lost.

    `on_message(channel, payload)` is called for each message, and with None as payload each time
    that the server has confirmed a channel, after a reconnect again: from then on, nothing is
    lost until the connection breaks.
    """

    def __init__(self, url: str, name: str, on_message: OnMessage) -> None:
        self._connection = looping_connection(url, COMMAND_TIMEOUT_S)
        self._name = name
        self._on_message = on_message
        self._channels: set[str] = set()
        self._link: _Link | None = None
        self._end: asyncio.Future[None] | None = None

    def add(self, channel: str) -> None:
        """Subscribe, now or as soon as there is a connection."""
        if channel not in self._channels:
            self._channels.add(channel)
            self._send("SSUBSCRIBE", channel)

    def remove(self, channel: str) -> None:
        """Unsubscribe."""
        if channel in self._channels:
            self._channels.remove(channel)
            self._send("SUNSUBSCRIBE", channel)

    async def run(self) -> NoReturn:
        """Receive until the connection breaks; see `ChannelSubscription`."""
        self._end = asyncio.get_running_loop().create_future()
        link = _Link(self._on_answer, self._on_lost)
        await _open_link(self._connection, link, self._name)
        self._link = link
        try:
            for channel in self._channels:
                self._send("SSUBSCRIBE", channel)
            await self._end
        finally:
            self._link = None
            await _close_link(self._connection, link)
        raise AssertionError("a subscription ends with an error")

    def _send(self, *parts: str) -> None:
        if self._link is not None:
            self._link.write(pack(parts))

    def _on_answer(self, raw: Any) -> None:
        if isinstance(raw, RefusedError):
            self._finish(named(raw, ("SSUBSCRIBE", *self._channels)))
        elif raw[0] == b"smessage":
            self._on_message(raw[1].decode(), raw[2])
        elif raw[0] == b"ssubscribe":
            self._on_message(raw[1].decode(), None)

    def _on_lost(self, error: UnreachableError) -> None:
        self._link = None
        self._finish(error)

    def _finish(self, error: Exception) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    async def close(self) -> None:
        """Close the connection; `run` ends with `UnreachableError`. May be called again."""
        await _close_link(self._connection, self._link)
