"""The beat: a thread and a connection of its own, so that nothing can hold it up."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ...broker import fleet, membership
from ...broker.errors import UnusableKeyError
from ...broker.interface import COMMAND_TIMEOUT_S, Executor
from ...service.back_off import LONGEST_S, BackOff
from ...service.watchdog import Pace
from ...wire.errors import Remedy, ServerError
from ...wire.keys import ModelKeys
from .context import WorkerContext

Announcement = Mapping[str, str]

_OF_ONE_MODEL = (Remedy.SET_ASIDE, Remedy.RECREATE, Remedy.REPORT)


class Heartbeat:
    """Keeps a worker among the living of each model that it serves.

    The keeper calls `announce`; the rest belongs to the heartbeat thread. After a beat went through
    for all models, `on_beat` gets the moment before it was sent: the lease begins again there. A
    name that is gone from the living, because the server lost its data or somebody deleted it, is
    entered again where no peer can have buried it. A model whose keys have the wrong type is
    reported once and set aside: it must not cost the others their beat. `stopping` ends it.
    """

    def __init__(
        self,
        executor: Executor,
        context: WorkerContext,
        worker: str,
        stopping: threading.Event,
        on_beat: Callable[[float], None],
    ) -> None:
        self._executor = executor
        self._clock = context.clock
        self._events = context.events
        self._faults = context.faults
        self._worker = worker
        self._stopping = stopping
        self._beat_s = context.settings.beat_ms / 1000
        # Never slower than the beat, or peers would bury it right after the server's return.
        pace = Pace(back_off=BackOff(longest_s=min(self._beat_s, LONGEST_S)), goes_first=True)
        self._loop = context.watchdog.watch("heartbeat", COMMAND_TIMEOUT_S, pace)
        # The hash outlives a few missed beats; whether a worker is alive is for the counter to say.
        self._ttl_ms = 3 * context.settings.lease_ms
        self._safe_ms = context.settings.lease_ms * 2 / 3
        self._on_beat = on_beat
        # Replaced, never changed: by `announce`, and by the heartbeat thread after each beat.
        self._wanted: Mapping[ModelKeys, Announcement] = {}
        self._announced: Mapping[ModelKeys, Announcement] = {}
        self._joined: set[ModelKeys] = set()  # written by the heartbeat thread
        self._models: set[str] = set()  # their names, for other threads to look up
        self._beaten_ms: dict[ModelKeys, float] = {}  # when each last beat began; of this thread
        self._set_aside: set[str] = set()  # models whose refusal was reported; of this thread
        self._again = threading.Event()
        self.fenced = threading.Event()

    def announce(self, announcements: Mapping[ModelKeys, Announcement]) -> None:
        """Serve these models and no others from the next beat on, and say this about them."""
        if self._wanted != announcements:
            self._wanted = dict(announcements)
            self._again.set()

    @property
    def is_announced(self) -> bool:
        """Whether peers and operators can read what was announced last."""
        return self._announced == self._wanted

    @property
    def models_joined(self) -> int:
        """How many models the worker has joined."""
        return len(self._joined)

    def has_joined(self, model: str) -> bool:
        """Whether the worker is among the living of a model; before that it may not take."""
        return model in self._models

    def run(self) -> None:
        """Beat until the worker stops or is fenced; at once where something is to be announced."""
        try:
            while (pause_s := self.step()) is not None:
                if self._again.wait(pause_s):
                    self._again.clear()
                    self._loop.hurry()
        finally:
            self.close()

    def step(self) -> float | None:
        """Beat once, if the server lets us; see `Stepped`.

        Raises:
            ServerError: trying again would not help.
        """
        if self._stopping.is_set() or self.fenced.is_set():
            return None
        if (delay_s := self._loop.delay_s()) > 0:
            return delay_s
        try:
            self._faults.reach("worker.before_beat")
            self.beat_once()
        except ServerError as error:
            self._loop.failed(error)
            return self._loop.delay_s()
        self._loop.worked()
        return self._beat_s

    def close(self) -> None:
        """End the watch over the beat; the connection is for `leave_all`."""
        self._loop.end()

    def beat_soon(self) -> None:
        """Have `run` beat at once, or see that it is over."""
        self._again.set()

    def beat_once(self) -> None:
        """Beat for every model.

        Raises:
            ServerError: the server failed.
        """
        began_ms = self._clock.monotonic_ms()
        wanted = self._wanted
        for keys in self._joined - set(wanted):
            self._joined.discard(keys)
            self._models.discard(keys.model)
            self._beaten_ms.pop(keys, None)
            with self._isolated(keys):
                self._executor.run_all(membership.vanish(keys, self._worker))
        for keys, announcement in wanted.items():
            with self._isolated(keys):
                self._beat(keys, announcement, began_ms)
            if self.fenced.is_set():
                return
        self._announced = wanted
        self._on_beat(began_ms)

    @contextmanager
    def _isolated(self, keys: ModelKeys) -> Iterator[None]:
        """Keep errors that concern the keys of one model alone from the others."""
        try:
            yield
        except ServerError as error:
            if error.remedy not in _OF_ONE_MODEL:
                raise
            if keys.model not in self._set_aside:
                self._set_aside.add(keys.model)
                self._events.emit("stream.unusable", model=keys.model, reason=str(error))
        else:
            self._set_aside.discard(keys.model)

    def _beat(self, keys: ModelKeys, announcement: Announcement, began_ms: float) -> None:
        if not self._is_alive(keys, announcement, began_ms):
            if not self._executor.run(fleet.is_deployed(keys)):
                return  # undeployed, or lost until routers put it back
            if not self._is_back(keys, announcement):
                self.fenced.set()
                return
        self._joined.add(keys)
        self._models.add(keys.model)
        self._beaten_ms[keys] = began_ms

    def _is_alive(self, keys: ModelKeys, announcement: Announcement, began_ms: float) -> bool:
        if keys in self._joined:
            return self._move(keys, announcement, began_ms)
        return self._join(keys, announcement)

    def _join(self, keys: ModelKeys, announcement: Announcement) -> bool:
        return self._executor.run(membership.join(keys, self._worker, self._ttl_ms, announcement))

    def _move(self, keys: ModelKeys, announcement: Announcement, began_ms: float) -> bool:
        # Whole each time: the hash may have expired while this process was frozen.
        beat = membership.beat(keys, self._worker, self._ttl_ms, announcement)
        try:
            return self._executor.run(beat) > 0
        except UnusableKeyError:
            if self._is_safe(keys):
                # While a foreign key lies in the place of the living, nobody can be buried.
                self._beaten_ms[keys] = began_ms
            raise

    def _is_safe(self, keys: ModelKeys) -> bool:
        """Whether no peer can have buried us: they do once they saw no beat for a whole lease."""
        beaten_ms = self._beaten_ms.get(keys)
        return beaten_ms is not None and self._clock.monotonic_ms() <= beaten_ms + self._safe_ms

    def _is_back(self, keys: ModelKeys, announcement: Announcement) -> bool:
        """Whether a name that is gone was no peer's to bury, and was entered again."""
        if not self._is_safe(keys) or not self._join(keys, announcement):
            return False
        self._events.emit("worker.rejoined", worker=self._worker, model=keys.model)
        return True

    def leave_all(self) -> None:
        """Leave all models, once the heartbeat thread has ended.

        Raises:
            ServerError: the server failed; peers will notice by the missing beats.
        """
        while self._joined:
            keys = self._joined.pop()
            with self._isolated(keys):
                self._executor.run(membership.leave(keys, self._worker))
