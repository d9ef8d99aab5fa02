"""The pump threads of a router: each reads and admits the ingress of up to eight tenants."""

import threading
from collections.abc import Collection
from dataclasses import dataclass

from ..broker.errors import NoGroupError
from ..broker.interface import blocking_timeout_s
from ..service.lifecycle import MakeThread, StopSignal, Thread, run_steps
from ..service.watchdog import PROMPT, Pace
from ..wire.errors import ServerError
from ..wire.keys import ModelKeys
from .admitter import Admitter
from .pump import BLOCK_MS, STREAMS_MAX, Pump
from .shared import SharedState
from .view import ModelView

_BLOCK_S = BLOCK_MS / 1000
# What a dead router had read waits below five seconds in all: a read takes up to one.
_DEAD_ROUTER_IDLE_MS = 3_000
_CLAIM_MS = 500
_PRUNE_MS = 10_000
# Until the keeper has looked at a record that is not there.
_LEFT_PAUSE_S = 0.1
_JOIN_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class PumpGroup:
    """What one pump thread reads: up to eight tenants of one model."""

    keys: ModelKeys
    tenants: tuple[str, ...]


class PumpThread:
    """Reads and admits entries, claims what dead routers left, backs off while the server is away.

    It ends with the program, or once `over` is set.
    """

    def __init__(self, group: PumpGroup, shared: SharedState, stop: StopSignal) -> None:
        keys, name = group.keys, shared.name
        self._reader = shared.broker.connect(f"{name}-read", blocking_timeout_s(_BLOCK_S))
        self._writer = shared.broker.connect(f"{name}-accept")
        self.admitter = Admitter(self._writer, keys, shared)
        self._pump = Pump(self._reader, self.admitter, keys, name, group.tenants)
        self._loop = shared.watchdog.watch(
            f"pump {keys.model} {group.tenants[0]}", _BLOCK_S, Pace(back_off=PROMPT)
        )
        self._model = keys.model
        self._shared = shared
        self._stop = stop
        self.over = threading.Event()
        self._next_claim_ms = 0.0
        self._next_prune_ms = 0.0

    def run(self) -> None:
        """Pump until the program stops or the group is not wanted any more.

        Raises:
            DeniedError: the server does not let us in.
        """
        run_steps(self, self._stop.wait)

    def step(self) -> float | None:
        """Claim if that is due, then wait for entries and handle them; see `Stepped`."""
        if self._stop.is_set() or self.over.is_set():
            return None
        if (delay_s := self._loop.delay_s()) > 0:
            return delay_s
        try:
            self._claim_if_due()
            self._pump.run_once()
        except ServerError as error:
            if isinstance(error, NoGroupError):
                # Or its model was undeployed: then the keeper ends this thread.
                self._shared.look_soon.set()
            self._loop.failed(error)
            return self._loop.delay_s()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end what serves all
            self._shared.report_failed(self._model, error)
            self._loop.broke()
            return self._loop.delay_s()
        self._loop.worked()
        return _LEFT_PAUSE_S if self._pump.has_left else 0.0

    def _claim_if_due(self) -> None:
        now_ms = self._shared.clock.monotonic_ms()
        if now_ms >= self._next_claim_ms:
            self._next_claim_ms = now_ms + _CLAIM_MS
            self._pump.claim(_DEAD_ROUTER_IDLE_MS)
        if now_ms >= self._next_prune_ms:
            self._next_prune_ms = now_ms + _PRUNE_MS
            self._pump.prune()

    def close(self) -> None:
        """End the watch, and the connections."""
        self._loop.end()
        self._reader.close()
        self._writer.close()


class PumpThreads:
    """Starts and ends pump threads as the view requires. Owned by the keeper's thread.

    `failure` is what one of them died of.
    """

    def __init__(self, shared: SharedState, make_thread: MakeThread) -> None:
        self._shared = shared
        self._make_thread = make_thread
        self._running: dict[PumpGroup, tuple[PumpThread, Thread]] = {}
        self.failure: BaseException | None = None

    def match(self, models: Collection[ModelView], stop: StopSignal) -> None:
        """Have every tenant of these models read, and nobody else."""
        wanted = {
            PumpGroup(model.keys, model.tenants[at : at + STREAMS_MAX])
            for model in models
            for at in range(0, len(model.tenants), STREAMS_MAX)
        }
        for group in self._running.keys() - wanted:
            pump_thread, _ = self._running.pop(group)
            pump_thread.over.set()
        for group in wanted - self._running.keys():
            pump_thread = PumpThread(group, self._shared, stop)
            thread = self._make_thread(f"pump {group.keys.model}", pump_thread, self._fail)
            thread.start()
            self._running[group] = (pump_thread, thread)

    def accepted(self, keys: ModelKeys) -> int:
        """Requests of a model that the threads running now have accepted so far."""
        running = self._running.items()
        return sum(thread.admitter.opened for group, (thread, _) in running if group.keys == keys)

    def stop(self) -> None:
        """End all of them."""
        for pump_thread, _ in self._running.values():
            pump_thread.over.set()
        for _, thread in self._running.values():
            thread.join(_JOIN_TIMEOUT_S)
        self._running.clear()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
