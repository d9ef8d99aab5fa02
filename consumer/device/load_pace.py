"""How a version is loaded without being in the way of others, in its process and beside it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import TypeVar

from .host import lower_priority
from .receive_turns import ReceiveTurns

T = TypeVar("T")


class LoadPace:
    """Of a load that is in nobody's way.

    Attributes:
        slice_ms: how long a batch of the warm-up may take.
    """

    slice_ms: float = inf

    def aside(self, work: Callable[[], T]) -> T:
        """Do what takes long and runs no code of the model's; raises what it raises."""
        return work()

    def pause(self) -> None:
        """Between two batches of the load's own."""


class PaceBeside(LoadPace):
    """Of a load on the device thread of a process: batches of others come between its parts."""

    def __init__(self, turns: ReceiveTurns, slice_ms: int) -> None:
        """`slice_ms`: 0 where the process serves nobody."""
        self._turns = turns
        self.slice_ms = slice_ms or inf

    def aside(self, work: Callable[[], T]) -> T:
        """On a thread of low CPU priority."""
        found: Future[T] = Future()

        def run() -> None:
            lower_priority()
            try:
                found.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised again by the device thread
                found.set_exception(error)
            self._turns.nudge()

        threading.Thread(target=run, name="aside", daemon=True).start()
        self._turns.do_batches_until(found.done)
        return found.result()

    def pause(self) -> None:
        """Do what has come meanwhile."""
        self._turns.do_batches()
