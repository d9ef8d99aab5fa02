"""The router program: one keeper thread watches the fleet, pump threads read its ingress."""

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import getpid
from random import Random
from secrets import token_hex

from ..broker.errors import NoGroupError, StaleRecordError
from ..broker.interface import COMMAND_TIMEOUT_S, Broker, Executor, blocking_timeout_s
from ..broker.redis_broker import RedisBroker
from ..broker.rights import ROUTER, require_rights
from ..service.clock import Clock
from ..service.events import Events
from ..service.fault_points import FaultPoints
from ..service.identity import new_worker_name
from ..service.lifecycle import MakeThread, StopSignal, Thread, stepped_thread
from ..service.logs import OncePerKind, shown_error
from ..service.outage import Outage
from ..service.settings import Settings
from ..service.steps import StepFaults, Steps
from ..service.watchdog import PROMPT, Loop, Pace, Watchdog
from ..wire.errors import ServerError, SettingsError
from ..wire.keys import ModelKeys
from .admission import Situation
from .drain_rate import DrainRate
from .mending import Mending
from .presence import Presence
from .pump import BLOCK_MS, STREAMS_MAX, Admitter, Pump, PumpDesk
from .sweeping import answer_abandoned, promote_ripe, remove_buckets, sweep_overdue
from .view import FleetView, ModelView, UnservedWatch, read_model, read_view

_BLOCK_S = BLOCK_MS / 1000
# What a dead router had read waits below five seconds in all: a read takes up to one.
_DEAD_ROUTER_IDLE_MS = 3_000
_CLAIM_MS = 500
_PRUNE_MS = 10_000
# Until the keeper has looked at a record that is not there.
_LEFT_PAUSE_S = 0.1
_SWEEP_MS = 100
# Looks at the fleet that lie further apart than so many, and a slow look, were interrupted.
_CONTACT_REFRESHES = 2
_SLOW_LOOK_MS = 1_000
_JOIN_TIMEOUT_S = 15
# Whatever the server has lost, the keeper makes anew, and all others wait for that.
_KEEPER_PACE = Pace(back_off=PROMPT, goes_first=True)


@dataclass(frozen=True, slots=True)
class PumpGroup:
    """What one pump thread reads: up to eight tenants of one model."""

    keys: ModelKeys
    tenants: tuple[str, ...]


class RouterProgram:
    """Starts, watches and stops the threads of one router.

    The keeper (the thread that calls `run`) owns all of it. Pump threads read `_situations`, which
    is replaced and never changed.
    """

    def __init__(
        self,
        settings: Settings,
        events: Events,
        clock: Clock,
        broker: Broker | None = None,
        make_thread: MakeThread = stepped_thread,
        faults: FaultPoints | None = None,
    ) -> None:
        self._settings = settings
        self._make_thread = make_thread
        self._broker = broker or RedisBroker(settings.redis_url)
        self._events = events
        self._clock = clock
        self._faults = faults or FaultPoints()
        self._name = new_worker_name(f"r-{socket.gethostname()}", getpid(), token_hex(4))
        self._view = FleetView()
        self._abandoned: frozenset[tuple[str, str]] = frozenset()
        self._situations: Mapping[str, Situation] = {}
        self._drain_rates: Mapping[str, DrainRate] = {}
        self._steps: dict[PumpGroup, Admitter] = {}
        self._watch = UnservedWatch(
            settings.no_worker_ms, _CONTACT_REFRESHES * settings.refresh_ms + _SLOW_LOOK_MS
        )
        self._presence = Presence(settings.namespace, self._name, settings.refresh_ms)
        self._pumps: dict[PumpGroup, tuple[Thread, threading.Event]] = {}
        self._refresh_now = threading.Event()
        self._failure: BaseException | None = None
        self._watchdog = Watchdog(events, clock, Outage(events, clock), Random())  # noqa: S311
        self._loop = self._watchdog.watch("keeper", COMMAND_TIMEOUT_S, _KEEPER_PACE)
        self._apart = Steps(self._watchdog.outage, StepFaults(events, clock))
        self._mending = Mending(events, self._apart, lambda: token_hex(4))
        self._is_ready = False
        self._has_looked = False
        self._next_refresh_ms = 0.0
        self._ahead = OncePerKind(clock)
        self._failed = OncePerKind(clock)
        self._dropped_lock = threading.Lock()
        self._dropped = OncePerKind(clock)  # guarded by _dropped_lock

    def run(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> int:
        """Route until `stop`; returns the exit code.

        Raises:
            DeniedError: the server does not let us in; trying again would not help.
        """
        executor = self._broker.connect(f"{self._name}-keeper")
        try:
            with self._loop:
                while not stop.is_set() and self._failure is None:
                    self.tick(executor, stop, on_ready)
                    stop.wait(_SWEEP_MS / 1000)
        finally:
            self.stop_pumps()
            self._withdraw(executor)
            executor.close()
        self._events.emit("router.stopped")
        if self._failure is not None:
            raise self._failure
        return 0

    def tick(
        self, executor: Executor, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]
    ) -> None:
        """Do what is due now, on the keeper's connection: follow the fleet, sweep, watch loops.

        Raises:
            DeniedError: the server does not let us in.
        """
        if self._loop.delay_s() == 0:
            self._ask_server(executor, stop)
        if self._has_looked and not self._is_ready:
            self._announce(on_ready)
        self._watchdog.look()

    def _ask_server(self, executor: Executor, stop: StopSignal) -> None:
        """One look at the fleet if it is due, and one sweep."""
        loop, steps = self._loop, self._apart
        now_ms = self._clock.monotonic_ms()
        is_due = now_ms >= self._next_refresh_ms or self._refresh_now.is_set()
        steps.begin()
        try:
            if not self._has_looked:
                require_rights(executor, ROUTER, self._settings.namespace)
            if is_due:
                self._refresh_now.clear()
                steps.run("refresh", "", lambda: self._refresh(executor, stop))
                self._next_refresh_ms = now_ms + self._settings.refresh_ms
                self._remove_buckets(executor)
                self._answer_abandoned(executor)
            dropped = self._report_dropped
            self._for_each_model("promote", lambda model: promote_ripe(executor, model, dropped))
            self._for_each_model("sweep", lambda model: self._sweep(executor, model))
            for name, model in self._view.aside.items():
                steps.run("sweep", name, partial(self._sweep, executor, model))
            has_worked = steps.worked()
        except ServerError as error:
            self._next_refresh_ms = 0.0
            loop.failed(error)
            return
        if has_worked:
            loop.worked()
        else:
            loop.broke()

    def _sweep(self, executor: Executor, model: ModelView) -> None:
        self._faults.reach("router.before_sweep")
        sweep_overdue(executor, model, self._report_dropped)

    def _announce(self, on_ready: Callable[[dict[str, object]], None]) -> None:
        self._is_ready = True
        self._events.emit("router.started")
        on_ready({"models": sorted(self._view.models)})

    def _for_each_model(self, step: str, action: Callable[[ModelView], object]) -> None:
        """Do something for every model; what is wrong with one concerns no other."""
        for name, model in self._view.models.items():
            self._apart.run(step, name, partial(self._act, action, model))

    def _act(self, action: Callable[[ModelView], object], model: ModelView) -> None:
        try:
            action(model)
        except StaleRecordError:
            self._refresh_now.set()

    def _remove_buckets(self, executor: Executor) -> None:
        for name, model in self._view.models.items():
            if any(record.draining for record in model.deployment.versions.values()):
                self._apart.run("buckets", name, partial(remove_buckets, executor, model))

    def _refresh(self, executor: Executor, stop: StopSignal) -> None:
        namespace, steps = self._settings.namespace, self._apart
        view = read_view(executor, namespace, steps, self._view)
        now_ms = self._clock.monotonic_ms()
        if self._mending.look(executor, view, now_ms):
            view = read_view(executor, namespace, steps, view)
        if view.list_fault is not None:
            self._watchdog.outage.begins(view.list_fault)
        self._report_changes(view)
        self._abandoned = self._watch.observe(view, now_ms)
        self._drain_rates = {
            name: self._drain_rates.get(name, DrainRate()).after(
                model.open_requests, self._accepted(model.keys), now_ms
            )
            for name, model in view.models.items()
        }
        self._take_over(view)
        self._match_pumps(stop)
        self._has_looked = True
        stamps = {name: model.deployment.stamp for name, model in view.models.items()}
        steps.run("presence", "", partial(self._presence.announce, executor, stamps))

    def _withdraw(self, executor: Executor) -> None:
        if self._watchdog.outage.is_on:
            return  # nobody is told, and a stop must not wait for it
        try:
            self._presence.withdraw(executor)
        except ServerError as error:
            self._watchdog.outage.begins(error)

    def _accepted(self, keys: ModelKeys) -> int:
        """Requests of a model that this router has accepted so far."""
        steps = self._steps.items()
        return sum(step.opened for group, step in steps if group.keys == keys)

    def _take_over(self, view: FleetView) -> None:
        """Put a view in force, for the pumps as well; the keeper alone does."""
        self._view = view
        self._situations = {
            name: Situation(
                model=model,
                abandoned=frozenset(v for name_, v in self._abandoned if name_ == name),
                memory_full=view.memory_full,
                retry_after_ms=self._drain_rates.get(name, DrainRate()).retry_after_ms(
                    model.deployment.limits.backlog
                ),
            )
            for name, model in view.models.items()
        }

    def _report_changes(self, view: FleetView) -> None:
        for name in set(view.faults) - set(self._view.faults):
            self._events.emit("model.record_unreadable", model=name, reason=view.faults[name])
        for name in set(view.foreign) - set(self._view.foreign):
            reason = f"{view.foreign[name]} has the wrong type"
            self._events.emit("stream.unusable", model=name, reason=reason)
        for name, model in view.models.items():
            before = self._view.models.get(name)
            if before is None or before.deployment.nonce != model.deployment.nonce:
                self._events.emit(
                    "model.deployed",
                    model=name,
                    version=model.deployment.stable,
                    epoch=model.deployment.epoch,
                )

    def _answer_abandoned(self, executor: Executor) -> None:
        for name, version in self._abandoned:
            view = self._view.models.get(name)
            if view is None or version not in view.deployment.versions:
                continue
            answer = partial(answer_abandoned, executor, view, version)
            if count := self._apart.run("abandoned", name, answer):
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
            self._steps.pop(group, None)
        for group in wanted - set(self._pumps):
            over = threading.Event()
            loop = PumpThread(self, group, stop, over)
            thread = self._make_thread(f"pump {group.keys.model}", loop, self._fail)
            thread.start()
            self._pumps[group] = (thread, over)

    def stop_pumps(self) -> None:
        """End all pump threads."""
        for _, over in self._pumps.values():
            over.set()
        for thread, _ in self._pumps.values():
            thread.join(_JOIN_TIMEOUT_S)
        self._pumps.clear()

    def _fail(self, error: BaseException) -> None:
        self._failure = error

    def situation(self, model: str) -> Situation | None:
        """What a pump needs to know of its model right now; None once it is not deployed."""
        return self._situations.get(model)

    def make_pump(self, group: PumpGroup) -> tuple[Pump, list[Executor]]:
        """A pump with connections of its own, which the caller closes."""
        connect = self._broker.connect
        reader = connect(f"{self._name}-read", blocking_timeout_s(_BLOCK_S))
        writer = connect(f"{self._name}-accept")
        looker = connect(f"{self._name}-look")
        desk = PumpDesk(
            situation=lambda: self.situation(group.keys.model),
            refresh=lambda: self._reread(looker, group.keys),
            dropped=self._report_dropped,
            failed=lambda error: self.report_failed(group.keys.model, error),
            ahead=lambda tenant, entry_id: self._report_ahead(group.keys, tenant, entry_id),
            faults=self._faults,
        )
        step = Admitter(writer, group.keys, desk)
        self._steps[group] = step
        pump = Pump(reader, step, group.keys, self._name, group.tenants)
        return pump, [reader, writer, looker]

    def _report_dropped(self, kind: str, count: int) -> None:
        """Tell of a kind once; what comes after is counted and told in sums."""
        with self._dropped_lock:
            sums = self._dropped.summary()
            first = self._dropped.admit(kind, count)
        for known, sum_ in sums.items():
            self._events.emit("router.entry_dropped", kind=known, count=sum_)
        if first:
            self._events.emit("router.entry_dropped", kind=kind, count=count)

    def report_failed(self, model: str, error: Exception) -> None:
        """An entry, or a pump, failed for a reason that nobody foresaw."""
        kind = type(error).__name__
        self._failed.summary()  # a minute later it is news again
        if self._failed.admit(f"{model} {kind}"):
            reason = shown_error(error)
            self._events.emit("router.entry_failed", model=model, kind=kind, reason=reason)

    def _report_ahead(self, keys: ModelKeys, tenant: str, entry_id: bytes) -> None:
        self._ahead.summary()  # a minute later it is news again
        if self._ahead.admit(f"{keys.model} {tenant}"):
            self._events.emit(
                "stream.ids_ahead", model=keys.model, tenant=tenant, entry_id=entry_id.decode()
            )

    def mend_soon(self) -> None:
        """A pump misses a stream or its group: the keeper is to look."""
        self._refresh_now.set()

    def _reread(self, executor: Executor, keys: ModelKeys) -> Situation | None:
        """The situation of one model as it is now, for a pump; the keeper is to look as well."""
        self._refresh_now.set()
        situation = self.situation(keys.model)
        if situation is None:
            return None
        try:
            model = read_model(executor, keys, situation.model).model
        except SettingsError:
            return situation  # the keeper tells of it, and ends this pump
        return None if model is None else replace(situation, model=model)

    def watch(self, group: PumpGroup) -> Loop:
        """The watch over a pump thread."""
        name = f"pump {group.keys.model} {group.tenants[0]}"
        return self._watchdog.watch(name, _BLOCK_S, Pace(back_off=PROMPT))

    @property
    def clock(self) -> Clock:
        """The program's clock."""
        return self._clock


class PumpThread:
    """One pump thread: pumps, claims what dead routers left, backs off while the server is away."""

    def __init__(
        self, program: RouterProgram, group: PumpGroup, stop: StopSignal, over: threading.Event
    ) -> None:
        self._program = program
        self._group = group
        self._stop = stop
        self._over = over
        self._pump, self._executors = program.make_pump(group)
        self._loop = program.watch(group)
        self._next_claim_ms = 0.0
        self._next_prune_ms = 0.0

    def run(self) -> None:
        """Pump until the program stops or the group is not wanted any more.

        Raises:
            DeniedError: the server does not let us in.
        """
        try:
            while (pause_s := self.step()) is not None:
                if pause_s:
                    self._stop.wait(pause_s)
        finally:
            self.close()

    def step(self) -> float | None:
        """Claim if that is due, then wait for entries and handle them; see `Stepped`."""
        if self._stop.is_set() or self._over.is_set():
            return None
        if (delay_s := self._loop.delay_s()) > 0:
            return delay_s
        try:
            self._claim_if_due()
            self._pump.run_once()
        except ServerError as error:
            if isinstance(error, NoGroupError):
                # Or its model was undeployed: then the keeper ends this thread.
                self._program.mend_soon()
            self._loop.failed(error)
            return self._loop.delay_s()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end what serves all
            self._program.report_failed(self._group.keys.model, error)
            self._loop.broke()
            return self._loop.delay_s()
        self._loop.worked()
        return _LEFT_PAUSE_S if self._pump.has_left else 0.0

    def _claim_if_due(self) -> None:
        now_ms = self._program.clock.monotonic_ms()
        if now_ms >= self._next_claim_ms:
            self._next_claim_ms = now_ms + _CLAIM_MS
            self._pump.claim(_DEAD_ROUTER_IDLE_MS)
        if now_ms >= self._next_prune_ms:
            self._next_prune_ms = now_ms + _PRUNE_MS
            self._pump.prune()

    def close(self) -> None:
        """End the watch, and the connections."""
        self._loop.end()
        for executor in self._executors:
            executor.close()
