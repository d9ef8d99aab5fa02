"""Gives up held requests that were cancelled or have expired meanwhile.

`take` hands out open requests only; this is for what waits inside the worker. What runs on the
device goes on to its end, since a batch cannot be taken apart.
"""

from collections.abc import Iterable
from functools import partial

from ...broker import requests
from ...broker.interface import Executor
from ...service.steps import Steps
from ...wire.keys import ModelKeys
from .worker import Worker

# Most requests are over before the first look.
_LOOK_MS = 250.0


class CancelWatch:
    """Looks every quarter of a second, on the keeper's thread and connection."""

    def __init__(self, worker: Worker, executor: Executor, namespace: str, steps: Steps) -> None:
        self._worker = worker
        self._executor = executor
        self._namespace = namespace
        self._steps = steps
        self._next_ms = 0.0

    def tick(self, models: Iterable[str], now_ms: float) -> bool:
        """Look if it is time; whether the server was asked.

        Raises:
            ServerError: the server failed.
        """
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + _LOOK_MS
        asked = False
        for model in models:
            members = self._worker.not_begun(model, now_ms - _LOOK_MS)
            if members:
                keys = ModelKeys(self._namespace, model)
                asked = True
                look = partial(self._executor.run, requests.closed_among(keys, members))
                if closed := self._steps.run("closed", model, look):
                    self._worker.drop_closed(model, closed)
        return asked
