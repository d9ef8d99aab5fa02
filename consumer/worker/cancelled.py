"""Looks whether what a worker holds is still wanted: requests may be cancelled or expire meanwhile.

`take` hands out open requests only; this is for what waits inside the worker. What runs on the
device goes on to its end, since a batch cannot be taken apart.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Protocol

from ...broker import requests
from ...broker.interface import Executor
from ...service.steps import Steps
from ...wire.keys import ModelKeys

# Most requests are over before anybody would look.
_LOOK_MS = 250.0


class Holder(Protocol):
    """What the look needs of its worker."""

    def held_since(self, model: str, taken_before_ms: float) -> list[str]:
        """Requests of a model held for a while and not run yet, as members of `due`."""

    def drop_closed(self, model: str, closed: Collection[str]) -> None:
        """Give up what somebody else has ended."""


class CancelWatch:
    """Looks every quarter of a second, on the keeper's thread and connection."""

    def __init__(self, holder: Holder, executor: Executor, namespace: str, steps: Steps) -> None:
        self._holder = holder
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
            members = self._holder.held_since(model, now_ms - _LOOK_MS)
            if members:
                keys = ModelKeys(self._namespace, model)
                asked = True
                look = partial(self._executor.run, requests.closed_among(keys, members))
                if closed := self._steps.run("closed", model, look):
                    self._holder.drop_closed(model, closed)
        return asked
