"""What a client does when the connection broke: wait for the server, then try once more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..broker import fleet
from ..broker.errors import DeniedError, TransientError, UnreachableError, UnwritableError
from ..broker.interface import AsyncExecutor
from ..wire.errors import ServerError
from .errors import ClientClosedError, unwritable
from .pauses import Pauses


class Reconnect:
    """Waits for the server on behalf of one client."""

    def __init__(self, executor: AsyncExecutor) -> None:
        self._executor = executor
        self._is_closed = False

    def close(self) -> None:
        """End all waits with `ClientClosedError`."""
        self._is_closed = True

    async def retry_once(self, send: Callable[[], Awaitable[Any]], within_s: float) -> Any:
        """What `send` returns, tried again where the connection broke."""
        try:
            return await send()
        except ServerError as error:
            await self.wait_for(error, within_s)
            return await send()

    async def wait_for(self, error: ServerError, within_s: float) -> None:
        """Return when a request may be added again, or raise where that would not help.

        Whether it was added before is unknown; added again under its id, it still runs once.
        """
        if isinstance(error, UnwritableError):
            raise unwritable(error) from error
        if not isinstance(error, UnreachableError | TransientError):
            raise error from None
        if self._is_closed:
            raise ClientClosedError("the client was closed") from None
        if not self._executor.was_reachable:
            raise error from None
        await self._wait_until_reachable(within_s)

    async def _wait_until_reachable(self, within_s: float) -> None:
        pauses = Pauses()
        try:
            async with asyncio.timeout(within_s):
                while True:
                    await pauses.pause()
                    if await self._is_reachable():
                        return
        except TimeoutError as error:
            raise UnreachableError(f"no answer from the server for {within_s:g} s") from error

    async def _is_reachable(self) -> bool:
        try:
            await self._executor.run(fleet.ping())
        except (UnreachableError, TransientError):
            if self._is_closed:
                raise ClientClosedError("the client was closed") from None
            return False
        except UnwritableError as error:
            raise unwritable(error) from error
        except DeniedError:
            return True  # it answers; the next command meets the same error if it concerns that
        return True
