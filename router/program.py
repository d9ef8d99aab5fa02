"""The router program: one keeper thread watches the fleet, pump threads read its ingress."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import getpid
from secrets import token_hex

from ..broker.blocking import BlockingExecutor
from ..broker.errors import DeniedError
from ..service.clock import Clock
from ..service.events import Events
from ..service.identity import new_worker_name
from ..service.lifecycle import StopSignal, guarded_thread
from ..service.outage import Outage
from ..service.settings import Settings
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys
from .admission import Situation
from .pump import BLOCK_MS, STREAMS_MAX, Pump, PumpStep
from .sweeping import answer_abandoned, sweep_overdue
from .view import FleetView, UnservedWatch, read_view

_PUMP_TIMEOUT_S = BLOCK_MS / 1000 + 10
_BACK_OFF_MS = (100, 5_000)
_DEAD_ROUTER_IDLE_MS = 5_000
_SWEEP_MS = 100
_JOIN_TIMEOUT_S = 15
_RETRY_AFTER_MS = 1000


@dataclass(frozen=True, slots=True)
class PumpGroup:
    """What one pump thread reads: up to eight tenants of one model."""

    keys: ModelKeys
    tenants: tuple[str, ...]


class RouterProgram:
    """Starts, watches and stops the threads of one router.

    The keeper (the thread that calls `run`) owns `_view`, `_abandoned` and `_pumps`; pump threads
    read the first two, which are replaced and never changed.
    """

    def __init__(self, settings: Settings, events: Events, clock: Clock) -> None:
        self._settings = settings
        self._events = events
        self._clock = clock
        self._name = new_worker_name(f"r-{socket.gethostname()}", getpid(), token_hex(4))
        self._view = FleetView()
        self._abandoned: frozenset[tuple[str, str]] = frozenset()
        self._watch = UnservedWatch(settings.no_worker_ms)
        self._pumps: dict[PumpGroup, tuple[threading.Thread, threading.Event]] = {}
        self._refresh_now = threading.Event()
        self._failure: BaseException | None = None
        self._outage = Outage(events, clock)

    def run(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> int:
        """Route until `stop`; returns the exit code.

        Raises:
            DeniedError: the server does not let us in; trying again would not help.
        """
        executor = BlockingExecutor(self._settings.redis_url, f"{self._name}-keeper")
        ready = False
        try:
            next_refresh_ms = 0.0
            while not stop.is_set() and self._failure is None:
                now_ms = self._clock.monotonic_ms()
                if now_ms >= next_refresh_ms or self._refresh_now.is_set():
                    self._refresh_now.clear()
                    next_refresh_ms = now_ms + self._settings.refresh_ms
                    ready = self._guard(lambda: self._refresh(executor, stop)) and (
                        ready or self._announce(on_ready)
                    )
                self._guard(lambda: self._sweep(executor))
                stop.wait(_SWEEP_MS / 1000)
        finally:
            self._stop_pumps()
            executor.close()
        self._events.emit("router.stopped")
        if self._failure is not None:
            raise self._failure
        return 0

    def _announce(self, on_ready: Callable[[dict[str, object]], None]) -> bool:
        self._events.emit("router.started")
        on_ready({"models": sorted(self._view.models)})
        return True

    def _guard(self, action: Callable[[], None]) -> bool:
        """Run an action of the keeper; a server that is away is reported once and waited for."""
        try:
            action()
        except DeniedError:
            raise
        except ServerError as error:
            self._outage.begins(error)
            return False
        self._outage.ends()
        return True

    def _refresh(self, executor: BlockingExecutor, stop: StopSignal) -> None:
        try:
            view = read_view(executor, self._settings.namespace)
        except SettingsError as error:
            self._events.emit("router.entry_failed", kind=f"deploy record: {error}")
            return
        self._report_changes(view)
        self._view = view
        self._abandoned = self._watch.observe(view, self._clock.monotonic_ms())
        self._match_pumps(stop)

    def _report_changes(self, view: FleetView) -> None:
        for name, model in view.models.items():
            before = self._view.models.get(name)
            if before is None or before.deployment.epoch != model.deployment.epoch:
                self._events.emit(
                    "model.deployed",
                    model=name,
                    version=model.deployment.stable,
                    epoch=model.deployment.epoch,
                )

    def _sweep(self, executor: BlockingExecutor) -> None:
        for model in self._view.models.values():
            sweep_overdue(executor, model)
        for name, version in self._abandoned:
            view = self._view.models.get(name)
            count = 0 if view is None else answer_abandoned(executor, view, version)
            if count:
                self._events.emit("request.no_worker", model=name, version=version, count=count)

    def _match_pumps(self, stop: StopSignal) -> None:
        wanted = {
            PumpGroup(model.keys, model.tenants[at : at + STREAMS_MAX])
            for model in self._view.models.values()
            for at in range(0, len(model.tenants), STREAMS_MAX)
        }
        for group in [group for group in self._pumps if group not in wanted]:
            _, over = self._pumps.pop(group)
            over.set()
        for group in wanted - set(self._pumps):
            over = threading.Event()
            loop = PumpLoop(self, group, stop, over)
            thread = guarded_thread(f"pump {group.keys.model}", loop.run, self._fail)
            self._pumps[group] = (thread, over)
            thread.start()

    def _stop_pumps(self) -> None:
        for _, over in self._pumps.values():
            over.set()
        for thread, _ in self._pumps.values():
            thread.join(_JOIN_TIMEOUT_S)
        self._pumps.clear()

    def _fail(self, error: BaseException) -> None:
        self._failure = error

    def situation(self, model: str) -> Situation | None:
        """What a pump needs to know of its model right now."""
        view = self._view
        found = view.models.get(model)
        if found is None or found.deployment.stable not in found.deployment.versions:
            return None
        return Situation(
            model=found,
            abandoned=frozenset(version for name, version in self._abandoned if name == model),
            memory_full=view.memory_full,
            retry_after_ms=_RETRY_AFTER_MS,
        )

    def make_pump(self, group: PumpGroup) -> tuple[Pump, list[BlockingExecutor]]:
        """A pump with connections of its own, which the caller closes."""
        url = self._settings.redis_url
        reader = BlockingExecutor(url, f"{self._name}-read", _PUMP_TIMEOUT_S)
        writer = BlockingExecutor(url, f"{self._name}-accept")
        looker = BlockingExecutor(url, f"{self._name}-look")
        step = PumpStep(
            writer,
            group.keys,
            situation=lambda: self.situation(group.keys.model),
            refresh=lambda: self._reread(looker),
            dropped=lambda kind, count: self._events.emit(
                "router.entry_dropped", kind=kind, count=count
            ),
        )
        pump = Pump(reader, step, group.keys, self._name, group.tenants)
        return pump, [reader, writer, looker]

    def _reread(self, executor: BlockingExecutor) -> None:
        """Read the fleet anew from a pump thread; the keeper's next pass replaces the whole."""
        fresh = read_view(executor, self._settings.namespace)
        self._view = replace(self._view, models={**self._view.models, **fresh.models})
        self._refresh_now.set()

    @property
    def outage(self) -> Outage:
        """Tells losses of the server once, for all threads."""
        return self._outage

    @property
    def clock(self) -> Clock:
        """The program's clock."""
        return self._clock


class PumpLoop:
    """One pump thread: pumps, claims what dead routers left, backs off while the server is away."""

    def __init__(
        self, program: RouterProgram, group: PumpGroup, stop: StopSignal, over: threading.Event
    ) -> None:
        self._program = program
        self._group = group
        self._stop = stop
        self._over = over

    def run(self) -> None:
        """Pump until the program stops or the group is not wanted any more."""
        pump, executors = self._program.make_pump(self._group)
        wait_ms = _BACK_OFF_MS[0]
        next_claim_ms = 0.0
        try:
            while not self._stop.is_set() and not self._over.is_set():
                try:
                    now_ms = self._program.clock.monotonic_ms()
                    if now_ms >= next_claim_ms:
                        next_claim_ms = now_ms + _DEAD_ROUTER_IDLE_MS
                        pump.claim(_DEAD_ROUTER_IDLE_MS)
                    pump.run_once()
                except DeniedError:
                    raise
                except ServerError as error:
                    self._program.outage.begins(error)
                    self._stop.wait(wait_ms / 1000)
                    wait_ms = min(2 * wait_ms, _BACK_OFF_MS[1])
                else:
                    self._program.outage.ends()
                    wait_ms = _BACK_OFF_MS[0]
        finally:
            for executor in executors:
                executor.close()
