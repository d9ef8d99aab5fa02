"""The beat: a thread and a connection of its own, so that nothing can hold it up."""

import threading
from collections.abc import Callable, Mapping

from ..broker import fleet
from ..broker.blocking import BlockingExecutor
from ..service.clock import Clock
from ..wire.keys import ModelKeys

Announcement = Mapping[str, str]


class Heart:
    """Keeps a worker among the living of each model that it serves.

    `serve` and `announce` may be called from any thread; `run` belongs to the heart's own.
    After a beat went through for all models, `on_beat` gets the moment before it was sent, which
    is when the lease began anew.
    """

    def __init__(
        self,
        executor: BlockingExecutor,
        clock: Clock,
        worker: str,
        lease_ms: int,
        on_beat: Callable[[float], None],
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._worker = worker
        # The hash outlives a few missed beats; whether a worker is alive is for the counter to say.
        self._ttl_ms = 3 * lease_ms
        self._on_beat = on_beat
        self._lock = threading.Lock()
        self._wanted: dict[ModelKeys, Announcement] = {}  # guarded by _lock
        self._told: dict[ModelKeys, Announcement] = {}  # the heart's own
        self._again = threading.Event()
        self.fenced = threading.Event()

    def announce(self, keys: ModelKeys, announcement: Announcement) -> None:
        """Serve a model from the next beat on, or change what is said about it."""
        with self._lock:
            self._wanted[keys] = announcement
        self._again.set()

    def withdraw(self, keys: ModelKeys) -> None:
        """Stop beating for a model; the caller makes the worker leave it."""
        with self._lock:
            self._wanted.pop(keys, None)
        self._told.pop(keys, None)

    def members(self) -> list[ModelKeys]:
        """The models that the worker has joined."""
        return list(self._told)

    def wait_s(self, timeout_s: float) -> None:
        """Wait for the next beat, less where something new is to be announced."""
        self._again.wait(timeout_s)
        self._again.clear()

    def stop(self) -> None:
        """Make `wait_s` return."""
        self._again.set()

    def beat_once(self) -> None:
        """Beat for every model.

        Raises:
            ServerError: the server failed.
        """
        began_ms = self._clock.monotonic_ms()
        with self._lock:
            wanted = dict(self._wanted)
        for keys, announcement in wanted.items():
            told = self._told.get(keys)
            if told is None:
                join = fleet.join(keys, self._worker, self._ttl_ms, announcement)
                alive = self._executor.run(join)
            else:
                changed = {k: v for k, v in announcement.items() if told.get(k) != v}
                beat = fleet.beat(keys, self._worker, self._ttl_ms, changed)
                alive = self._executor.run(beat) > 0
            if not alive:
                self.fenced.set()
                return
            self._told[keys] = announcement
        self._on_beat(began_ms)

    def leave_all(self) -> None:
        """Go from all models by one's own will.

        Raises:
            ServerError: the server failed; peers will notice by the missing beats.
        """
        for keys in self.members():
            self._executor.run(fleet.leave(keys, self._worker))
            self._told.pop(keys, None)
