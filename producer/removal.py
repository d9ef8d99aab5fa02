"""Removes replies that callers have received, many with one command."""

import asyncio
from contextlib import suppress

from ..broker import requests
from ..broker.interface import AsyncExecutor
from ..wire.errors import ServerError
from ..wire.keys import ModelKeys

_GATHER_S = 0.05
_BATCH_MAX = 256
_CLOSE_TIMEOUT_S = 1.0


class ReplyRemover:
    """Gathers ids for 50 ms or until there are 256, then unlinks their reply keys."""

    def __init__(self, executor: AsyncExecutor, tenant: str) -> None:
        self._executor = executor
        self._tenant = tenant
        # By model. Ids in a dict for its order, and since several callers may wait for one reply;
        # the value says whether the request may have blobs as well.
        self._gathered: dict[str, tuple[ModelKeys, dict[str, bool]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    def add(self, keys: ModelKeys, request_id: str, *, with_blobs: bool = False) -> None:
        """Remove this reply soon, and the request's blobs if it may have any."""
        gathered = self._gathered.get(keys.model)
        if gathered is None:
            gathered = self._gathered[keys.model] = (keys, {})
        ids = gathered[1]
        ids[request_id] = with_blobs
        if len(ids) == _BATCH_MAX:
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._start)

    def _start(self) -> None:
        task = asyncio.create_task(self._remove_gathered(), name="batchfleet unlink")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _remove_gathered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, {}
        for keys, ids in gathered.values():
            for batch in _batches(list(ids)):
                with_blobs = [request_id for request_id in batch if ids[request_id]]
                commands = requests.forget_replies(keys, self._tenant, batch, with_blobs)
                # A reply that cannot be removed expires by itself; nobody waits for this.
                with suppress(ServerError):
                    await self._executor.run_each(commands)

    async def close(self) -> None:
        """Remove what is left, within a second."""
        self._start()
        await asyncio.wait(self._running, timeout=_CLOSE_TIMEOUT_S)


def _batches(ids: list[str]) -> list[list[str]]:
    return [ids[at : at + _BATCH_MAX] for at in range(0, len(ids), _BATCH_MAX)]
