"""One waiter for all requests of a client: it subscribes to their channels and reads their keys.

The reply key decides; a notification is only faster, and holds small replies. Since it may get
lost, keys are read again whenever the server has confirmed a channel (first, and after each
reconnect), and every `_CHECK_S`.
"""

import asyncio
import math
from collections.abc import Coroutine, Iterable
from typing import Any

import msgpack

from ..broker import requests
from ..broker.commands import Command
from ..broker.errors import DeniedError, TransientError, UnreachableError
from ..broker.interface import AsyncExecutor, Broker
from ..wire.codec import is_whole_reply
from ..wire.errors import ErrorKind, ProtocolError, RequestError, ServerError
from ..wire.keys import ModelKeys
from ..wire.reply import Reply, decode_reply
from .errors import ClientClosedError, WaitTimeoutError, reply_gone
from .pauses import Pauses
from .waits import AwaitedId, Channel, Wait

WAITS_MAX = 100_000
# Ids of a client share one channel per model; each other channel is for ids that callers gave.
CHANNELS_MAX = 256
_CHECK_S = 5.0
_SOON_S = 0.25
_FIRST_POLL_S = 0.01
_POLLS_COUNTED = 16
_READ_MAX = 128
_CONFIRM_S = 10.0
_CANCEL_AGAIN_S = 0.1
# Timers may come a little early, and two sweeps stand apart so that many waits cost little.
_SWEEP_EARLY_S = 0.002
_SWEEP_S = 0.02


class Waiter:
    """The table of waits. Belongs to one event loop; starts its tasks when first used."""

    def __init__(self, broker: Broker, name: str, tenant: str, executor: AsyncExecutor) -> None:
        self._tenant = tenant
        self._executor = executor
        self._subscription = broker.subscribe(name, self._receive)
        self._channels: dict[str, Channel] = {}
        self._listening: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._waits = 0
        self._asked: dict[AwaitedId, None] = {}
        self._ask_event = asyncio.Event()
        self._pauses = Pauses()
        # Set with the first channel: asking for it costs a call of the system each time.
        self._loop: asyncio.AbstractEventLoop
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = math.inf
        self._is_poll_only = False  # the server does not let us subscribe
        self._is_closed = False

    @property
    def waits(self) -> int:
        """Callers that wait now."""
        return self._waits

    def expect(self, keys: ModelKeys, request_id: str, within_s: float) -> Wait | None:
        """Enter the table; from now on no answer to this id is missed.

        Await the future of what is returned, then `forget` it in any case. None = the channel
        has to be confirmed first: await `confirm` and enter again.

        Raises (also from the future):
            WaitTimeoutError: no reply within `within_s`; the request is still open.
            CallerError: `unknown_request`, it is finished but its reply is gone.
            FleetError: `busy`, too many wait already.
            ClientClosedError: closed.
        """
        channel = self._channels.get(keys.channel(self._tenant, request_id))
        if channel is None or not channel.is_ready:
            return None
        if self._waits >= WAITS_MAX:
            raise RequestError.of(
                ErrorKind.BUSY, f"this client already has {WAITS_MAX} waiting callers"
            )
        entry = channel.entries.get(request_id)
        if entry is None:
            entry = channel.entries[request_id] = AwaitedId(channel, request_id)
            if channel.is_polled:
                self._poll_later(entry)
        wait = Wait(entry, self._deadline(within_s), self._loop.create_future())
        entry.waits.add(wait)
        self._waits += 1
        return wait

    async def confirm(self, keys: ModelKeys, request_id: str, within_s: float) -> None:
        """Subscribe to the channel of an id: one round trip, and no longer than `within_s`.

        Raises:
            ServerError: the server cannot be reached or does not let us subscribe.
            WaitTimeoutError: the caller's own timeout was shorter.
            ClientClosedError: closed.
        """
        name = keys.channel(self._tenant, request_id)
        channel = self._channels.get(name) or self._open_channel(keys, name)
        if channel.is_ready:
            return
        try:
            async with asyncio.timeout(min(within_s, _CONFIRM_S)):
                await channel.settled.wait()
        except TimeoutError as error:
            if within_s < _CONFIRM_S:
                raise WaitTimeoutError(_timed_out(keys, request_id)) from error
            raise UnreachableError("the server did not confirm a subscription") from error
        if channel.failure is not None:
            raise channel.failure

    def renew(self, wait: Wait, within_s: float) -> None:
        """Wait again after the future was given an error of this caller alone."""
        wait.deadline, wait.future = self._deadline(within_s), self._loop.create_future()
        if wait.entry.outcome is not None:
            wait.resolve(wait.entry.outcome)

    def forget(self, wait: Wait) -> None:
        """Leave the table."""
        self._waits -= 1
        entry, future = wait.entry, wait.future
        entry.waits.discard(wait)
        if entry.outcome is None and not entry.waits:
            self._leave(entry)
        if future.done() and not future.cancelled():
            future.exception()  # seen, even where its caller had left already

    def read_soon(self, wait: Wait, *, is_repeat: bool = False) -> None:
        """Read the reply key at once: the answer may be there already.

        Args:
            wait: whose.
            is_repeat: the id was just added again, so that a refusal there may be an old one.
        """
        if wait.entry.is_open:
            wait.entry.is_repeat = is_repeat
            self._ask(wait.entry)

    def _deadline(self, within_s: float) -> float:
        """The loop's time in `within_s`; a sweep is due by then."""
        deadline = self._loop.time() + within_s
        if deadline < self._sweep_at:
            self._sweep_later(deadline)
        return deadline

    def _sweep_later(self, at: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = at
        self._sweeper = self._loop.call_at(at, self._sweep)

    def _sweep(self) -> None:
        """End the waits whose deadline has passed; sweep again at the next deadline."""
        self._sweeper, self._sweep_at = None, math.inf
        now = self._loop.time()
        left = math.inf
        for wait in self._open_waits():
            if wait.deadline > now + _SWEEP_EARLY_S:
                left = min(left, wait.deadline)
                continue
            wait.resolve(
                WaitTimeoutError(_timed_out(wait.entry.channel.keys, wait.entry.request_id))
            )
        if left < math.inf:
            self._sweep_later(max(left, now + _SWEEP_S))

    def _open_waits(self) -> list[Wait]:
        return [
            wait
            for channel in self._channels.values()
            for entry in channel.entries.values()
            for wait in entry.waits
        ]

    async def close(self) -> None:
        """End every wait with `ClientClosedError`. May be called again."""
        self._is_closed = True
        await _end([task for task in (self._listening, self._checking) if task is not None])
        self._fail_all(ClientClosedError("the client was closed"))
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._subscription.close()

    def _open_channel(self, keys: ModelKeys, name: str) -> Channel:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        self._loop = asyncio.get_running_loop()
        if len(self._channels) >= CHANNELS_MAX:
            self._drop_idle_channel()
        is_polled = self._is_poll_only or len(self._channels) >= CHANNELS_MAX
        channel = Channel(keys, name, is_polled, is_ready=is_polled)
        self._channels[name] = channel
        if not is_polled:
            self._subscription.add(name)
        if self._listening is None and not self._is_poll_only:
            self._listening = self._start(self._listen())
        if self._checking is None:
            self._checking = self._start(self._check())
        return channel

    def _drop_idle_channel(self) -> None:
        for name, channel in self._channels.items():
            if channel.is_ready and not channel.entries:
                del self._channels[name]
                self._subscription.remove(name)
                return

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name="batchfleet waiter")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """No more replies would be reported; the next caller starts it again."""
        if task is self._listening:
            self._listening = None
        else:
            self._checking = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail_all(error)

    async def _listen(self) -> None:
        """Keep the subscription up; ends where the server does not allow it."""
        while True:
            try:
                await self._subscription.run()
            except (UnreachableError, TransientError) as error:
                if not self._executor.was_reachable:
                    self._fail_unconfirmed(error)
            except DeniedError:
                self._poll_only()
                return
            await self._pauses.pause()

    def _poll_only(self) -> None:
        """Read keys from now on: the user has no right to the channels.

        Without a right to the replies, callers get the error of reading them.
        """
        self._is_poll_only = True
        for channel in self._channels.values():
            channel.poll()
            for entry in channel.entries.values():
                self._poll_later(entry)

    async def _check(self) -> None:
        """Read the keys that were asked for, and every `_CHECK_S` all."""
        while True:
            try:
                async with asyncio.timeout(_CHECK_S):
                    await self._ask_event.wait()
            except TimeoutError:
                for channel in self._channels.values():
                    self._asked.update(dict.fromkeys(channel.entries.values()))
            self._ask_event.clear()
            while self._asked:
                batch = list(self._asked)[:_READ_MAX]
                for entry in batch:
                    del self._asked[entry]
                await self._read_keys([entry for entry in batch if entry.is_open])

    async def _read_keys(self, entries: Iterable[AwaitedId]) -> None:
        entries = list(entries)
        commands: list[Command[Any]] = []
        for entry in entries:
            # The tombstone first: a reply that it knows of and that is not there now is gone.
            keys = entry.channel.keys
            commands.append(requests.tombstone(keys, self._tenant, entry.request_id))
            commands.append(requests.reply(keys, self._tenant, entry.request_id))
        answers = await self._executor.run_each(commands)
        for entry, status, raw in zip(entries, answers[::2], answers[1::2], strict=True):
            if entry.is_open:
                self._settle(entry, status, raw)

    def _settle(self, entry: AwaitedId, status: Any, raw: Any) -> None:
        """Act on what the keys of an id hold."""
        if isinstance(status, DeniedError):
            status = None  # the reply is what counts; only one that is gone is not noticed
        failure = next((a for a in (status, raw) if isinstance(a, ServerError)), None)
        if failure is not None:
            if not isinstance(failure, UnreachableError | TransientError):
                self._close(entry, failure)
            elif entry.channel.is_polled:
                self._poll_later(entry)
            return
        is_old_refusal = entry.is_repeat and status is None
        entry.is_repeat = False
        if raw is not None and not is_old_refusal:
            self._deliver_read(entry, raw)
        elif raw is None and status is not None:
            self._miss(entry, status)
        elif entry.channel.is_polled:
            self._poll_later(entry)

    def _deliver_read(self, entry: AwaitedId, raw: bytes) -> None:
        try:
            reply = decode_reply(raw)
        except ValueError as error:
            self._close(entry, ProtocolError(f"the reply to {entry.request_id}: {error}"))
            return
        if (reply.id, reply.tenant) != (entry.request_id, self._tenant):
            self._close(
                entry,
                ProtocolError(f"the reply key of {entry.request_id} holds another request's reply"),
            )
            return
        self._close(entry, reply)

    def _miss(self, entry: AwaitedId, status: str) -> None:
        # Another caller may have taken it while its notification was on the way to us.
        entry.misses += 1
        if entry.misses == 1:
            self._ask_soon(entry)
            return
        self._close(entry, reply_gone(entry.request_id, status))

    def _receive(self, name: str, payload: bytes | None) -> None:
        """A message of the subscription; None = it is confirmed."""
        channel = self._channels.get(name)
        if channel is None:
            return  # its last caller has left
        if payload is None:
            self._pauses.reset()
            channel.confirm()
            self._ask_all(channel)
            return
        try:
            for item in msgpack.unpackb(payload, raw=True):
                self._receive_item(channel, item)
        except (ValueError, TypeError):
            self._ask_all(channel)  # unreadable, as good as lost: read the keys

    def _receive_item(self, channel: Channel, item: bytes) -> None:
        if is_whole_reply(item):
            reply = decode_reply(item)
            entry = channel.entries.get(reply.id)
            if entry is not None and reply.tenant == self._tenant:
                self._close(entry, reply)
            return
        entry = channel.entries.get(item.decode())
        if entry is not None:
            self._ask(entry)

    def _close(self, entry: AwaitedId, outcome: Reply | BaseException) -> None:
        entry.outcome = outcome
        self._leave(entry)
        for wait in entry.waits:
            wait.resolve(outcome)

    def _leave(self, entry: AwaitedId) -> None:
        channel = entry.channel
        channel.entries.pop(entry.request_id, None)
        if channel.is_polled and not channel.entries:
            self._channels.pop(channel.name, None)

    def _fail_all(self, error: BaseException) -> None:
        for channel in list(self._channels.values()):
            for entry in list(channel.entries.values()):
                self._close(entry, error)
        self._drop(self._channels.values(), error)

    def _fail_unconfirmed(self, error: BaseException) -> None:
        self._drop((c for c in self._channels.values() if not c.is_ready), error)

    def _drop(self, channels: Iterable[Channel], error: BaseException) -> None:
        for channel in list(channels):
            channel.fail(error)
            del self._channels[channel.name]
            self._subscription.remove(channel.name)

    def _ask_all(self, channel: Channel) -> None:
        for entry in channel.entries.values():
            self._ask(entry)

    def _ask(self, entry: AwaitedId) -> None:
        self._asked[entry] = None
        self._ask_event.set()

    def _poll_later(self, entry: AwaitedId) -> None:
        """Ask again, the sooner the shorter it has been waited for."""
        delay_s = min(_SOON_S, _FIRST_POLL_S * 2**entry.polls)
        entry.polls = min(entry.polls + 1, _POLLS_COUNTED)
        self._loop.call_later(delay_s, self._ask, entry)

    def _ask_soon(self, entry: AwaitedId) -> None:
        self._loop.call_later(_SOON_S, self._ask, entry)


def _timed_out(keys: ModelKeys, request_id: str) -> str:
    command = f"batchfleet result {keys.model} {request_id}"
    return f"timed out; the request is still open: `{command}` waits for its reply"


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    """Cancel tasks until all have ended: one that is connecting may lose a cancellation.

    (Seen with redis-py 8.1 on Python 3.11.2 to 3.11.7: the connection is opened nevertheless.)
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)
