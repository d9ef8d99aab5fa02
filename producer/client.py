"""The blocking client: the asyncio client in a separate thread, and calls into it.

After a fork, the child gets its own event loop, thread and connections. It never touches those of
the parent, because closing them would affect what both processes share.
"""

import asyncio
import ctypes
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal, NoReturn, Self, TypeVar, Unpack, overload

from ..broker.interface import Broker
from ..wire.errors import BatchfleetError
from ..wire.states import State
from .async_client import AsyncClient
from .errors import ClientClosedError, not_picklable
from .options import NO_OPTIONS, OptionFields
from .result import Handle, HandleLike, Result
from .target import find_target

T = TypeVar("T")

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0
_END = object()


class _Core:
    """An event loop in a daemon thread with one asyncio client. Belongs to one process."""

    def __init__(self, make_client: Callable[[], AsyncClient]) -> None:
        self._make_client = make_client
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # guarded by _lock
        self._is_stopped = False  # guarded by _lock
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # set before _is_up
        self._stopping: asyncio.Event | None = None  # set before _is_up
        self.client = make_client()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and wait until it ends.

        An interrupt (Ctrl-C) cancels the work. Any thread except the loop's own may call this.

        Raises:
            ClientClosedError: it was stopped, or belongs to another process.
        """
        try:
            self._require_own_process()
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _require_own_process(self) -> None:
        # Before taking the lock, which a fork may have left locked forever.
        if os.getpid() != self._pid:
            raise ClientClosedError(
                "it was created in another process, and this one is a fork of it"
            )

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_stopped:
            raise ClientClosedError("the client was closed")
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve_thread, name="batchfleet client", daemon=True
            )
            self._thread.start()
        if not self._is_up.wait(_START_TIMEOUT_S):
            raise ClientClosedError(f"its thread did not start within {_START_TIMEOUT_S} s")
        assert self._loop is not None
        return self._loop

    def _serve_thread(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_up.set()
        await self._stopping.wait()
        await self.client.close()
        # Pending calls get their error before the loop ends.
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        if calls:
            await asyncio.wait(calls, timeout=_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Close the client and end the thread. Any thread may call it, more than once."""
        with self._lock:
            self._is_stopped = True
            thread = self._thread
        if thread is None or self._loop is None or self._stopping is None:
            return
        if thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        if thread is not threading.current_thread():
            thread.join(_STOP_TIMEOUT_S)


def _close_cores(cores: dict[int, _Core]) -> None:
    """End this process's core; one inherited by a fork belongs to the parent and is leaked.

    Its destruction would unregister and close what the parent is using.
    """
    for pid, core in cores.items():
        if pid == os.getpid():
            core.stop()
        else:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))


class Client:
    """Sends requests to a fleet and returns its replies; each call blocks.

    Any number of threads can share a client. It also works after a fork of the process.
    Arguments and errors are those of `AsyncClient`.
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
        NO_OPTIONS.with_fields(defaults or {})  # an error here rather than at the first request

        def make_client() -> AsyncClient:
            return AsyncClient(
                namespace=target.namespace,
                tenant=target.tenant,
                keep=keep,
                broker=target.broker,
                defaults=defaults,
            )

        self._make_client = make_client
        # By process id. `setdefault` is atomic, so no lock is needed that a fork could leave held.
        self._cores: dict[int, _Core] = {}
        self._finalizer = weakref.finalize(self, _close_cores, self._cores)

    def __reduce__(self) -> NoReturn:
        """A client belongs to its process."""
        raise not_picklable(self)

    def _core(self) -> _Core:
        if not self._finalizer.alive:
            raise ClientClosedError("the client was closed")
        core = self._cores.get(os.getpid())
        return core or self._cores.setdefault(os.getpid(), _Core(self._make_client))

    def submit(self, model: str, inputs: Any, **fields: Unpack[OptionFields]) -> Handle:
        """Add a request and return its handle; see `AsyncClient.submit`."""
        core = self._core()
        return core.run(core.client.submit(model, inputs, **fields))

    def result(self, handle: HandleLike, timeout_s: float | None = None) -> Result:
        """Wait for the reply to a submitted request; see `AsyncClient.result`."""
        core = self._core()
        return core.run(core.client.result(handle, timeout_s))

    def infer(self, model: str, inputs: Any, **fields: Unpack[OptionFields]) -> Result:
        """Submit a request and wait for the reply: the request's timeout plus 5 s.

        Args:
            model: name of a deployed model.
            inputs: a text, a list of texts, an array (first axis = rows), or a mapping name →
                array, list of numbers or list of texts. A list of numbers takes the datatype of the
                model's signature; an array must have it.
            fields: options such as `timeout_ms`; `batchfleet.producer.options.Options` explains
                each.

        Raises:
            RequestError: the error in the reply, or an invalid request.
            WaitTimeoutError: no reply in time; the request is still open.
            ServerError: the server refused a command or cannot be reached.
            ClientClosedError: the client was closed.
            TypeError: unknown option.
        """
        core = self._core()
        return core.run(core.client.infer(model, inputs, **fields))

    def poll(self, handle: HandleLike) -> Result | None:
        """The reply if it is available, else None; see `AsyncClient.poll`."""
        core = self._core()
        return core.run(core.client.poll(handle))

    def status(self, handle: HandleLike) -> State:
        """The state of a request; see `AsyncClient.status`."""
        core = self._core()
        return core.run(core.client.status(handle))

    def cancel(self, handle: HandleLike, timeout_s: float = 5.0) -> State:
        """Cancel a request; see `AsyncClient.cancel`."""
        core = self._core()
        return core.run(core.client.cancel(handle, timeout_s))

    @overload
    def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: Literal[False] = False,
        **fields: Unpack[OptionFields],
    ) -> Iterator[Result]: ...

    @overload
    def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: bool,
        **fields: Unpack[OptionFields],
    ) -> Iterator[Result | BatchfleetError]: ...

    def map(
        self,
        model: str,
        many_inputs: Iterable[Any],
        *,
        concurrency: int = 64,
        return_errors: bool = False,
        **fields: Unpack[OptionFields],
    ) -> Iterator[Result | BatchfleetError]:
        """Infer many inputs; results come in input order. See `AsyncClient.map`.

        `many_inputs` is read in the client's thread, so it must not use this client.
        """
        core = self._core()
        answers = core.client.map(
            model,
            many_inputs,
            concurrency=concurrency,
            return_errors=return_errors,
            **fields,
        )
        try:
            while (answer := core.run(_next(answers))) is not _END:
                yield answer
        finally:
            # A closed client has ended them, and in a forked child they are its parent's.
            with suppress(ClientClosedError):
                core.run(_end(answers))

    def close(self) -> None:
        """End waiting calls with `ClientClosedError` and disconnect. May be called twice."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(answers: AsyncIterator[Any]) -> Any:
    return await anext(answers, _END)


async def _end(answers: Any) -> None:
    await answers.aclose()
