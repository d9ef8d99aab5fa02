"""The asyncio client: everything that a caller can do, with one connection and one subscription.

`producer/client.py` is a blocking wrapper around it; the logic exists only here.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Literal, NoReturn, Self, Unpack, overload

from ..broker import requests
from ..broker.commands import Command
from ..broker.errors import DeniedError, UnreachableError, named
from ..broker.interface import Broker
from ..broker.packing import head_of
from ..wire.errors import BatchfleetError, ProtocolError, RequestError, ServerError, checked
from ..wire.keys import ModelKeys
from ..wire.names import require_name
from ..wire.numbers import Range
from ..wire.reply import Reply, decode_reply
from ..wire.states import State, stored_state
from .blobs import may_have_blobs, read_outputs
from .errors import ClientClosedError, WaitTimeoutError, not_picklable, reply_gone
from .ingress import Ingress, NotAddedError, PackedRequest, check_added
from .missing import not_added_error
from .options import (
    NO_OPTIONS,
    WAIT_S,
    OptionFields,
    Options,
    RequestIds,
    default_wait_s,
    require_number,
)
from .pauses import Pauses
from .reconnect import Reconnect
from .removal import ReplyRemover
from .result import Handle, HandleLike, Result, as_handle
from .target import find_target
from .waiter import Waiter
from .waits import Wait

CONCURRENCY = Range(1, 10_000)
_MODELS_MAX = 1024
_OPEN_STATES = (State.SUBMITTED, State.ACCEPTED)
# How many results `map` buffers while the next one in order is still running.
_AHEAD = 4


class AsyncClient:
    """Sends requests to a fleet and returns its replies.

    It belongs to the event loop that first uses it. Any number of tasks can share it: their
    requests use one connection, and their replies come through one subscription.

    Args:
        redis_url: URL of the server; None = `BATCHFLEET_REDIS_URL` or the settings file.
        namespace: namespace of the fleet; None = from the settings, `bf` by default.
        tenant: tenant of the requests; None = from the settings, `default` by default.
        keep: leave replies on the server until they expire, so that others can read them too.
            Otherwise a reply is removed soon after it was returned.
        broker: replaces the server; `batchfleet.testing` has one in memory.
        defaults: options for requests that do not set their own.

    Raises:
        SettingsError: no server is set.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        namespace: str | None = None,
        tenant: str | None = None,
        keep: bool = False,
        broker: Broker | None = None,
        defaults: OptionFields | None = None,
    ) -> None:
        target = find_target(redis_url, namespace, tenant, broker)
        self._namespace = target.namespace
        self._tenant = target.tenant
        self._keep = keep
        self._ids = RequestIds()
        self._options = NO_OPTIONS.with_fields(defaults or {})
        self._executor = target.broker.connect_looping("batchfleet-client")
        self._waiter = Waiter(
            target.broker, "batchfleet-client-waiter", self._tenant, self._executor
        )
        self._remover = ReplyRemover(self._executor, self._tenant)
        self._reconnect = Reconnect(self._executor)
        self._ingresses = lru_cache(_MODELS_MAX)(self._open_ingress)
        self._is_closed = False

    def __reduce__(self) -> NoReturn:
        """A client belongs to its event loop."""
        raise not_picklable(self)

    @property
    def waiting(self) -> int:
        """Number of callers that are waiting for a reply."""
        return self._waiter.waits

    async def submit(self, model: str, inputs: Any, **fields: Unpack[OptionFields]) -> Handle:
        """Add a request and return without waiting for its reply.

        Args:
            model: name of a deployed model.
            inputs: a text, a list of texts, an array (first axis = rows), or a mapping name →
                array, list of numbers or list of texts. A list of numbers takes the datatype of the
                model's signature; an array must have it.
            fields: the options of a request, such as `timeout_ms`; `Options` explains each.

        Raises:
            CallerError: `unknown_model`; `bad_inputs`; `too_large`; `bad_request`.
            FleetError: `unavailable`, the server has lost keys of the model; try again later.
            TypeError: unknown option.
            ServerError: the server refused a command or cannot be reached; the request may have
                been added or not.
            ClientClosedError: the client was closed.
        """
        options = self._options.with_fields(fields)
        entry = self._prepare(model, inputs, options)
        added = await self._add(entry, options.wait_s)
        return Handle(model, entry.request_id, added, options.total_ms)

    async def result(self, handle: HandleLike, timeout_s: float | None = None) -> Result:
        """Wait for the reply to a submitted request.

        Args:
            handle: of `submit`, or (model, id).
            timeout_s: how long to wait; None = the request's timeout plus 5 s.

        Raises:
            RequestError: the error in the reply; or `unknown_request`: the request is finished,
                but its reply was already taken or has expired.
            WaitTimeoutError: no reply in time; the request is still open.
            ServerError: the server refused a command or cannot be reached.
            ClientClosedError: the client was closed.
        """
        known = as_handle(handle)
        keys = self._keys_of(known)
        if timeout_s is None:
            seconds = default_wait_s(known.timeout_ms)
        else:
            seconds = require_number("timeout_s", timeout_s, WAIT_S)
        while (wait := self._waiter.expect(keys, known.id, seconds)) is None:
            await self._waiter.confirm(keys, known.id, seconds)
        try:
            self._waiter.read_soon(wait)
            return await self._to_result(keys, await wait.future)
        finally:
            self._waiter.forget(wait)

    async def infer(self, model: str, inputs: Any, **fields: Unpack[OptionFields]) -> Result:
        """Submit a request and wait for the reply: the request's timeout plus 5 s.

        Arguments are those of `submit`; errors are those of `submit` and `result`.
        """
        options = self._options.with_fields(fields)
        entry = self._prepare(model, inputs, options)
        keys, within_s = entry.keys, options.wait_s
        while (wait := self._waiter.expect(keys, entry.request_id, within_s)) is None:
            await self._waiter.confirm(keys, entry.request_id, within_s)
        try:
            if (store := entry.store) is not None:
                await self._reconnect.retry_once(lambda: self._executor.run_packed(store), within_s)
            self._executor.post(entry.add, wait.future, check_added)
            if options.id is not None:
                self._waiter.read_soon(wait, is_repeat=True)
            try:
                reply = await wait.future
            except NotAddedError as failed:
                reply = await self._add_again(failed.answer, entry, wait, within_s)
            return await self._to_result(keys, reply)
        except asyncio.CancelledError:
            if options.id is None:  # else others may have joined the request
                self._abandon(model, entry.request_id)
            raise
        finally:
            self._waiter.forget(wait)

    def _abandon(self, model: str, request_id: str) -> None:
        """Cancel a request that no caller waits for any more, so that it does not run in vain."""
        with suppress(ServerError):  # then it runs for nothing
            self._executor.post(
                self._ingress(model).pack_cancel(request_id),
                asyncio.get_running_loop().create_future(),
                lambda _, __: None,
            )

    async def cancel(self, handle: HandleLike, timeout_s: float = 5.0) -> State:
        """Cancel a request; its callers get the error `cancelled`.

        Returns the state of the request afterwards: `cancelled`, or the state in which it had
        already ended. A batch that is running runs to its end, and its result is discarded. An
        unknown id stays `unknown` and can be submitted later.

        Args:
            handle: of `submit`, or (model, id).
            timeout_s: how long to wait for a router to do it.

        Raises:
            WaitTimeoutError: no router cancelled it in time.
            CallerError: `unknown_model`.
            ServerError: the server refused, or cannot be reached.
        """
        known = as_handle(handle)
        seconds = require_number("timeout_s", timeout_s, WAIT_S)
        packed = self._ingress(known.model).pack_cancel(known.id)
        pauses = Pauses()
        try:
            async with asyncio.timeout(seconds):
                while (state := await self.status(known)) in _OPEN_STATES:
                    # Repeatedly: another router may read this before it reads the request.
                    send = partial(self._executor.run_packed, packed)
                    if await self._reconnect.retry_once(send, seconds) is None:
                        raise await not_added_error(
                            self._executor, self._keys_of(known), self._tenant
                        )
                    await pauses.pause()
        except TimeoutError as error:
            raise WaitTimeoutError(f"no router cancelled {known.id} in time") from error
        return state

    async def poll(self, handle: HandleLike) -> Result | None:
        """The reply if it is available, else None; does not wait. Errors are those of `result`."""
        known = as_handle(handle)
        keys = self._keys_of(known)
        status, raw = await self._ask_each(
            requests.tombstone(keys, self._tenant, known.id),
            requests.reply(keys, self._tenant, known.id),
        )
        # As the waiter does: without a right to the tombstone, a reply that is gone is not noticed.
        status, raw = None if isinstance(status, DeniedError) else checked(status), checked(raw)
        if raw is not None:
            return await self._to_result(keys, _decode(raw, known.id))
        if status is not None:
            raise reply_gone(known.id, status)
        return None

    async def status(self, handle: HandleLike) -> State:
        """The state of a request; removes nothing.

        A request that no router has read yet is `submitted` for a caller with its handle, and
        `unknown` for others.
        """
        known = as_handle(handle)
        keys = self._keys_of(known)
        start = (known.entry_id or b"+").decode()
        answers = await self._ask_each(
            requests.waiting(keys.ingress(self._tenant), start, 1),
            requests.deadline(keys, self._tenant, known.id),
            requests.tombstone(keys, self._tenant, known.id),
            requests.reply(keys, self._tenant, known.id),
        )
        entries, deadline, status, raw = map(checked, answers)
        state = stored_state(deadline, status, raw)
        is_unread = bool(entries) and entries[0][0] == known.entry_id
        return State.SUBMITTED if state is State.UNKNOWN and is_unread else state

    @overload
    def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: Literal[False] = False,
        **fields: Unpack[OptionFields],
    ) -> AsyncIterator[Result]: ...

    @overload
    def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: bool,
        **fields: Unpack[OptionFields],
    ) -> AsyncIterator[Result | BatchfleetError]: ...

    async def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: bool = False,
        **fields: Unpack[OptionFields],
    ) -> AsyncIterator[Result | BatchfleetError]:
        """Infer many inputs, `concurrency` at a time; results come in input order.

        `many_inputs` is read lazily, so it may be infinite. An error ends the iteration and the
        requests that are still running; with `return_errors` the error is yielded instead.
        """
        if "id" in fields:
            raise TypeError("one id cannot be used for several requests")
        concurrency = require_number("concurrency", concurrency, CONCURRENCY)
        slots = asyncio.Semaphore(concurrency)
        window: deque[asyncio.Task[Result]] = deque()
        try:
            for inputs in many_inputs:
                await slots.acquire()
                task = asyncio.create_task(self.infer(model, inputs, **fields))
                task.add_done_callback(lambda _: slots.release())
                window.append(task)
                while window and (window[0].done() or len(window) >= _AHEAD * concurrency):
                    yield await _outcome(window.popleft(), return_errors=return_errors)
            while window:
                yield await _outcome(window.popleft(), return_errors=return_errors)
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)

    def _prepare(self, model: str, inputs: Any, options: Options) -> PackedRequest:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        request_id = self._ids.new() if options.id is None else require_name("id", options.id)
        return self._ingress(model).pack(options, request_id, inputs)

    def _keys_of(self, handle: Handle) -> ModelKeys:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        require_name("id", handle.id)
        return self._ingress(handle.model).keys

    def _ingress(self, model: str) -> Ingress:
        # Checked first: what is no text may not be hashable, as a key of the cache must be.
        return self._ingresses(model if type(model) is str else require_name("model", model))

    def _open_ingress(self, model: str) -> Ingress:
        return Ingress(ModelKeys(self._namespace, require_name("model", model)), self._tenant)

    async def _add(self, entry: PackedRequest, within_s: float) -> bytes:
        entry_id = await self._reconnect.retry_once(lambda: self._send(entry), within_s)
        if entry_id is None:
            raise await self._not_added(entry)
        return bytes(entry_id)

    async def _send(self, entry: PackedRequest) -> Any:
        if entry.store is not None:
            await self._executor.run_packed(entry.store)
        return await self._executor.run_packed(entry.add)

    async def _add_again(
        self, answer: ServerError | None, entry: PackedRequest, wait: Wait, within_s: float
    ) -> Reply:
        """The reply to a request that was not added as far as we know."""
        if answer is None:
            raise await self._not_added(entry) from None
        self._waiter.renew(wait, within_s)
        if not wait.future.done():
            await self._reconnect.wait_for(named(answer, head_of(entry.add)), within_s)
            await self._add(entry, within_s)
        return await wait.future

    async def _not_added(self, entry: PackedRequest) -> RequestError:
        if entry.store is not None:
            await self._executor.run(
                requests.forget_blob(entry.keys, self._tenant, entry.request_id)
            )
        return await not_added_error(self._executor, entry.keys, self._tenant)

    async def _ask_each(self, *commands: Command[Any]) -> list[Any]:
        answers = await self._executor.run_each(commands)
        if isinstance(answers[0], UnreachableError) and self._executor.was_reachable:
            # The server may have cut an idle connection while this loop was busy elsewhere.
            answers = await self._executor.run_each(commands)
        return answers

    async def _to_result(self, keys: ModelKeys, reply: Reply) -> Result:
        if reply.outputs_at is not None:
            reply = await read_outputs(self._executor, keys, self._tenant, reply)
        if not self._keep:
            self._remover.add(keys, reply.id, with_blobs=may_have_blobs(reply))
        error = reply.to_error()
        if error is not None:
            raise error
        return Result(reply)

    async def close(self) -> None:
        """End all waits with `ClientClosedError` and disconnect. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reconnect.close()
        await self._waiter.close()
        await self._remover.close()
        await self._executor.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _decode(raw: bytes, request_id: str) -> Reply:
    try:
        return decode_reply(raw)
    except ValueError as error:
        raise ProtocolError(f"the reply to {request_id}: {error}") from error


async def _outcome(
    task: "asyncio.Task[Result]", *, return_errors: bool
) -> Result | BatchfleetError:
    try:
        return await task
    except BatchfleetError as error:
        if return_errors:
            return error
        raise
