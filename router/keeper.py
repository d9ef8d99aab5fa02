"""The keeper of a router: follows the fleet, answers overdue requests, moves delayed ones."""

from collections.abc import Mapping
from functools import partial
from secrets import token_hex

from ..broker.advice import advise
from ..broker.errors import StaleRecordError
from ..broker.interface import COMMAND_TIMEOUT_S
from ..broker.rights import ROUTER, require_rights
from ..service.lifecycle import StopSignal
from ..service.settings import Settings
from ..service.steps import StepFaults, Steps
from ..service.watchdog import PROMPT, Pace
from ..wire.errors import ServerError
from .admission import Situation
from .drain_rate import DrainRate
from .mending import Mending
from .moving import move_waiting
from .presence import Presence
from .pump_threads import PumpThreads
from .shared import SharedState
from .sweeping import answer_abandoned, promote_ripe, remove_buckets, sweep_overdue
from .view import FleetView, ModelView, UnservedWatch, read_view

# Two looks at the fleet that are further apart than this were interrupted.
_CONTACT_REFRESHES = 2
_SLOW_LOOK_MS = 1_000
# Whatever the server has lost, the keeper restores, and all other loops wait for that.
_PACE = Pace(back_off=PROMPT, goes_first=True)


class RouterKeeper:
    """Owns the router's view of the fleet, and hands it to the pumps as `shared.situations`.

    Each tick sweeps; every `refresh_ms`, or when a pump asks for it, it reads the fleet first.
    """

    def __init__(self, settings: Settings, shared: SharedState, pumps: PumpThreads) -> None:
        self._settings = settings
        self._shared = shared
        self._pumps = pumps
        self._executor = shared.broker.connect(f"{shared.name}-keeper")
        self._view = FleetView()
        self._abandoned: frozenset[tuple[str, str]] = frozenset()
        self._drain_rates: Mapping[str, DrainRate] = {}
        self._unserved = UnservedWatch(
            settings.no_worker_ms, _CONTACT_REFRESHES * settings.refresh_ms + _SLOW_LOOK_MS
        )
        self._presence = Presence(settings.namespace, shared.name, settings.refresh_ms)
        self._loop = shared.watchdog.watch("keeper", COMMAND_TIMEOUT_S, _PACE)
        self._steps = Steps(shared.watchdog.outage, StepFaults(shared.events, shared.clock))
        self._mending = Mending(shared.events, self._steps, lambda: token_hex(4))
        self._next_refresh_ms = 0.0
        self.has_looked = False

    def tick(self, stop: StopSignal) -> None:
        """One look at the fleet if it is due, and one sweep.

        Raises:
            DeniedError: the server does not let us in.
        """
        if self._loop.delay_s() > 0:
            return
        self._steps.begin()
        try:
            self._look_if_due(stop)
            self._sweep()
            has_worked = self._steps.worked()
        except ServerError as error:
            self._next_refresh_ms = 0.0
            self._loop.failed(error)
            return
        if has_worked:
            self._loop.worked()
        else:
            self._loop.broke()

    def _look_if_due(self, stop: StopSignal) -> None:
        now_ms = self._shared.clock.monotonic_ms()
        if not self.has_looked:
            require_rights(self._executor, ROUTER, self._settings.namespace)
        if now_ms < self._next_refresh_ms and not self._shared.look_soon.is_set():
            return
        self._shared.look_soon.clear()
        self._steps.run("refresh", "", partial(self._refresh, stop))
        self._next_refresh_ms = now_ms + self._settings.refresh_ms
        self._remove_buckets()
        self._answer_abandoned()

    def _refresh(self, stop: StopSignal) -> None:
        view, now_ms = self._read_view()
        self._report_changes(view)
        self._abandoned = self._unserved.observe(view, now_ms)
        self._drain_rates = {
            name: self._drain_rates.get(name, DrainRate()).after(
                model.open_requests, self._pumps.accepted(model.keys), now_ms
            )
            for name, model in view.models.items()
        }
        self._view = view
        self._shared.situations = {
            name: self._situation(name, model) for name, model in view.models.items()
        }
        self._pumps.match(view.models.values(), stop)
        if not self.has_looked:
            advise(self._executor, self._shared.events, self._settings)
        self.has_looked = True
        stamps = {name: model.deployment.stamp for name, model in view.models.items()}
        self._steps.run("presence", "", partial(self._presence.announce, self._executor, stamps))

    def _read_view(self) -> tuple[FleetView, float]:
        """The fleet, with what had to be restored, and when it was read."""
        executor, namespace, steps = self._executor, self._settings.namespace, self._steps
        view = read_view(executor, namespace, steps, self._view)
        now_ms = self._shared.clock.monotonic_ms()
        if self._mending.look(executor, view, now_ms):
            view = read_view(executor, namespace, steps, view)
        if view.list_fault is not None:
            self._shared.watchdog.outage.begins(view.list_fault)
        return view, now_ms

    def _situation(self, name: str, model: ModelView) -> Situation:
        return Situation(
            model=model,
            abandoned=frozenset(version for of, version in self._abandoned if of == name),
            memory_full=self._view.memory_full,
            retry_after_ms=self._drain_rates[name].retry_after_ms(model.deployment.limits.backlog),
        )

    def _report_changes(self, view: FleetView) -> None:
        events = self._shared.events
        for name in set(view.faults) - set(self._view.faults):
            events.emit("model.record_unreadable", model=name, reason=view.faults[name])
        for name in set(view.foreign) - set(self._view.foreign):
            reason = f"{view.foreign[name]} has the wrong type"
            events.emit("stream.unusable", model=name, reason=reason)
        for name, model in view.models.items():
            before, found = self._view.models.get(name), model.deployment
            if before is None or before.deployment.nonce != found.nonce:
                events.emit("model.deployed", model=name, version=found.stable, epoch=found.epoch)

    def _sweep(self) -> None:
        models = self._view.models
        for name, model in models.items():
            self._steps.run("promote", name, partial(self._promote, model))
            self._steps.run("move", name, partial(self._move, model))
        for name, model in {**models, **self._view.aside}.items():
            self._steps.run("sweep", name, partial(self._sweep_overdue, model))

    def _promote(self, model: ModelView) -> None:
        try:
            promote_ripe(self._executor, model, self._shared.report_dropped)
        except StaleRecordError:
            self._shared.look_soon.set()

    def _move(self, model: ModelView) -> None:
        try:
            count = move_waiting(self._executor, model)
        except StaleRecordError:
            self._shared.look_soon.set()
            return
        if count:
            self._shared.events.emit("request.moved", model=model.keys.model, count=count)

    def _sweep_overdue(self, model: ModelView) -> None:
        self._shared.faults.reach("router.before_sweep")
        sweep_overdue(self._executor, model, self._shared.report_dropped)

    def _remove_buckets(self) -> None:
        for name, model in self._view.models.items():
            if any(record.draining for record in model.deployment.versions.values()):
                self._steps.run("buckets", name, partial(remove_buckets, self._executor, model))

    def _answer_abandoned(self) -> None:
        for name, version in self._abandoned:
            model = self._view.models.get(name)
            if model is None or version not in model.deployment.versions:
                continue
            answer = partial(answer_abandoned, self._executor, model, version)
            if count := self._steps.run("abandoned", name, answer):
                self._shared.events.emit(
                    "request.no_worker", model=name, version=version, count=count
                )

    def close(self) -> None:
        """Remove the router's announcement, and disconnect."""
        self._loop.end()
        outage = self._shared.watchdog.outage
        if not outage.is_on:  # else nobody can be told, and a stop must not wait for it
            try:
                self._presence.leave(self._executor)
            except ServerError as error:
                outage.begins(error)
        self._executor.close()
