"""The consumer program: one worker after the other (a buried one starts over under a new name)."""

import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from os import getpid
from random import Random

from ..broker import membership
from ..broker.advice import advise
from ..broker.interface import COMMAND_TIMEOUT_S, Broker, Executor, blocking_timeout_s
from ..broker.redis_broker import RedisBroker
from ..broker.rights import WORKER, require_rights
from ..service.clock import Clock
from ..service.descendants import reap_orphans
from ..service.events import Events
from ..service.fault_points import FaultPoints
from ..service.identity import new_worker_name
from ..service.lifecycle import StopSignal, Thread
from ..service.outage import Outage
from ..service.settings import Settings
from ..service.steps import Steps
from ..service.watchdog import PROMPT, Pace, Watchdog
from ..wire.announcements import LOADING, READY, REFUSED, WorkerAnnouncement
from ..wire.deployment import Deployment, Stamp, VersionRecord
from ..wire.errors import ServerError
from ..wire.keys import ModelKeys
from .batching.loss_history import has_other_manifest, is_redeployed
from .batching.state import Lane
from .link.device_command import device_command
from .link.device_environment import device_environment
from .link.link import DeviceLink
from .worker.cancelled import CancelWatch
from .worker.context import Devices, WorkerContext
from .worker.intake import BELL_TIMEOUT_S, Intake
from .worker.interpreters import Interpreters
from .worker.records import DeployRecords
from .worker.recovery import Recovery
from .worker.worker import Outcome, Worker

_TICK_S = 0.1
_JOIN_S = 5.0

OnReady = Callable[[dict[str, object]], None]


def devices_of(settings: Settings, environ: Mapping[str, str]) -> Devices:
    """Device processes as the settings say; `environ` is our environment."""
    allowed = device_environment(environ, settings.device_environment)
    return Devices(
        open_link=lambda python: DeviceLink(device_command(settings, python), environ=allowed),
        environ=allowed,
        reap=reap_orphans,
    )


class ConsumerProgram:
    """Runs workers until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        clock: Clock,
        *,
        broker: Broker | None = None,
        devices: Devices,
        faults: FaultPoints | None = None,
    ) -> None:
        """See `WorkerContext`; what is None is made as the settings say."""
        self._context = WorkerContext(
            settings=settings,
            events=events,
            clock=clock,
            watchdog=Watchdog(events, clock, Outage(events, clock), Random()),  # noqa: S311
            broker=broker or RedisBroker(settings.redis_url),
            devices=devices,
            faults=faults or FaultPoints(),
        )

    def run(self, stop: StopSignal, on_ready: OnReady) -> int:
        """Work until `stop`; returns the exit code.

        Raises:
            DeniedError: the server does not let us in; trying again would not help.
        """
        events = self._context.events
        while True:
            name = new_worker_name(socket.gethostname(), getpid(), secrets.token_hex(4))
            keeper = Keeper(Worker(self._context, name), on_ready)
            outcome = keeper.run(stop)
            events.emit("worker.stopped", worker=name, reason=outcome.value)
            if outcome is Outcome.STOPPED:
                return 0
            if outcome is Outcome.FENCED:
                events.emit("worker.fenced", worker=name)
            if keeper.was_ready:
                on_ready = _ready_already


def _ready_already(_: dict[str, object]) -> None:
    """A program says once that it is ready."""


class Keeper:
    """Follows the deploy records for one worker, and watches its limits."""

    def __init__(self, worker: Worker, on_ready: OnReady) -> None:
        self._worker = worker
        self._context = worker.context
        self._on_ready: OnReady | None = on_ready
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._interpreters = Interpreters(self._context.settings, self._context.devices.environ)
        self._intakes: dict[str, tuple[Thread, threading.Event]] = {}
        self._executor = worker.connect("keeper")
        self._steps = Steps(self._context.outage)
        self._records = DeployRecords(self._context.settings, self._context.events, self._steps)
        self._recovery = Recovery(worker, self._executor)
        self._cancel_watch = CancelWatch(
            worker, self._executor, self._context.settings.namespace, self._steps
        )
        self._next_refresh_ms = 0.0
        self._refreshed_ms = 0.0
        self._loop = self._context.watchdog.watch("keeper", COMMAND_TIMEOUT_S)
        self._is_stranded = False  # it held requests of a version that cannot be loaded here
        self._has_looked = False  # at the deploy records
        self._announced_states: dict[tuple[str, str], dict[str, str]] = {}

    def run(self, stop: StopSignal) -> Outcome:
        """Keep the worker until it is stopped or fenced.

        Raises:
            DeniedError: the server does not let us in.
            Exception: the error that ended a thread of the worker.
        """
        self.start()
        try:
            while not (stop.is_set() or self.is_over):
                self.tick()
                self._worker.wants_records.wait(_TICK_S)
            self.wind_up()
        finally:
            self.close()
        return self.outcome()

    def start(self) -> None:
        """Begin the worker's life."""
        self._worker.start()
        self._context.events.emit("worker.started", worker=self._worker.name)

    def tick(self) -> None:
        """Do what is due now: follow the records, recover, watch limits and loops.

        Raises:
            DeniedError: the server does not let us in.
        """
        if self._worker.wants_records.is_set():
            self._worker.wants_records.clear()
            # Not at once again, where the server holds to another record than can be read.
            soon_ms = self._refreshed_ms + 1000 * _TICK_S
            self._next_refresh_ms = min(self._next_refresh_ms, soon_ms)
        if self._loop.delay_s() == 0:
            self._ask_server()
        self._worker.watch_limits()
        self._give_back_stranded()
        self._move_lanes()
        self._announce_changes()
        self._report_ready()
        self._context.watchdog.look()
        self._context.devices.reap()

    def _give_back_stranded(self) -> None:
        """Let go of requests whose version cannot be loaded here any more.

        Held, or pending since the lane before was dropped. An entry changes hands only where its
        owner leaves: the worker starts over as another.
        """
        orphaned = self._worker.orphaned
        for (model, version), lane in self._lanes.items():
            if lane.ready:
                orphaned.discard((model, version))  # intake looks at what is pending
            elif lane.refusal and (lane.held_rows or (model, version) in orphaned):
                self._worker.drop_lane(lane)
                self._is_stranded = True
                self._context.events.emit("lane.stranded", model=model, version=version)

    def _move_lanes(self) -> None:
        """Move lanes that are to have a device process of their own; refused ones need none."""
        for pair, lane in self._lanes.items():
            if lane.refusal:
                self._worker.drop_lane(lane)
            elif lane.is_moving:
                self._lanes[pair] = self._worker.move_lane(lane)

    def _announce_changes(self) -> None:
        """Announce at once what is ready or refused now: programs that wait for it look there."""
        states = {pair: _lane_state(lane) for pair, lane in self._lanes.items()}
        if states != self._announced_states:
            self._announced_states = states
            self._announce(self._records.known)

    @property
    def is_over(self) -> bool:
        """Whether the worker cannot go on as the one that it is."""
        is_fenced = self._worker.heartbeat.fenced.is_set()
        return is_fenced or self._is_stranded or self._worker.failure is not None

    def wind_up(self) -> None:
        """Take nothing more, and finish what is held as long as the grace period lasts."""
        worker = self._worker
        self._loop.end()
        stop_at_ms = worker.now_ms() + self._context.settings.grace_ms
        self._end_intakes()
        if not worker.heartbeat.fenced.is_set() and worker.failure is None:
            worker.drain(stop_at_ms)

    def close(self) -> None:
        """End all threads, and leave."""
        self._loop.end()
        self._worker.stop()
        self._executor.close()

    def outcome(self) -> Outcome:
        """How the worker's life ended.

        Raises:
            Exception: the error that ended one of its threads.
        """
        if self._worker.failure is not None:
            raise self._worker.failure
        if self._worker.heartbeat.fenced.is_set():
            return Outcome.FENCED
        return Outcome.STRANDED if self._is_stranded else Outcome.STOPPED

    def _ask_server(self) -> None:
        now_ms, loop, steps = self._worker.now_ms(), self._loop, self._steps
        is_due = now_ms >= self._next_refresh_ms
        steps.begin()
        try:
            if is_due:
                self._refreshed_ms = now_ms
                steps.run("refresh", "", lambda: self._refresh(self._executor))
                self._next_refresh_ms = now_ms + self._context.settings.refresh_ms
            known, lanes = self._records.known, list(self._lanes.values())
            steps.run("recover", "", lambda: self._recovery.tick(known, lanes))
            closed = steps.run("closed", "", lambda: self._cancel_watch.tick(known, now_ms))
            was_asked = steps.worked() and (closed or is_due)
        except ServerError as error:
            self._next_refresh_ms = 0.0
            loop.failed(error)
        else:
            if was_asked:
                loop.worked()
            else:
                loop.passed()

    def _refresh(self, executor: Executor) -> None:
        if not self._has_looked:
            namespace, example = self._context.settings.namespace, self._records.example
            require_rights(executor, WORKER, namespace, example)
        self._worker.measure_server_offset(executor)
        deployments = self._records.read(executor, self._worker.now_ms())
        self._match_lanes(deployments)
        self._worker.use_records(deployments)
        self._announce(deployments)
        if not self._has_looked:
            advise(executor, self._context.events, self._context.settings)
        self._has_looked = True

    def _match_lanes(self, deployments: Mapping[str, Deployment]) -> None:
        wanted = {
            (model, version): record
            for model, deployment in deployments.items()
            for version, record in deployment.versions.items()
        }
        for pair in [pair for pair in self._lanes if pair not in wanted]:
            self._worker.drop_lane(self._lanes.pop(pair))
        for pair, record in wanted.items():
            lane = self._lanes.get(pair)
            if lane is None:
                self._lanes[pair] = self._open_lane(pair[0], record)
            elif has_other_manifest(lane.record, record) or (
                lane.refusal and is_redeployed(lane.record, record)
            ):
                # This very version was deployed again: what made it refuse may be repaired.
                self._worker.drop_lane(lane)
                self._lanes[pair] = self._open_lane(pair[0], record)
            elif lane.record != record:
                self._worker.adjust_lane(lane, record)

    def _open_lane(self, model: str, record: VersionRecord) -> Lane:
        """A lane that is being loaded, or one that is refused without a look at the version."""
        refusal = device_misfit(record, self._context.settings.device)
        refusal = refusal or self._context.losses.refusal_of(f"{model}/{record.version}", record)
        if not refusal:
            python, refusal = self._interpreters.find(model, record)
            if not refusal:
                return self._worker.open_lane(model, record, python)
        self._context.events.emit(
            "lane.refused", model=model, version=record.version, reason=refusal
        )
        return Lane(0, model, record, refusal=refusal)

    def _announce(self, deployments: Mapping[str, Deployment]) -> None:
        namespace = self._context.settings.namespace
        for model, deployment in deployments.items():
            keys = ModelKeys(namespace, model)
            self._worker.heartbeat.announce(keys, self._announcement(model, deployment.stamp))
            if model not in self._intakes:
                self._start_intake(keys)
        for model in [model for model in self._intakes if model not in deployments]:
            _, over = self._intakes.pop(model)
            over.set()
            self._worker.heartbeat.withdraw(ModelKeys(namespace, model))

    def _announcement(self, model: str, stamp: Stamp) -> dict[str, str]:
        lanes = [lane for (name, _), lane in self._lanes.items() if name == model]
        return WorkerAnnouncement(
            versions={lane.version: _lane_state(lane) for lane in lanes},
            stamp=stamp,
            stalled=", ".join(self._context.watchdog.stalled),
            facts={
                "device": self._context.settings.device,
                "host": socket.gethostname(),
                "pid": str(getpid()),
                "room": str(sum(2 * lane.record.limits.max_batch_size for lane in lanes)),
            },
        ).to_fields()

    def _start_intake(self, keys: ModelKeys) -> None:
        over, name, worker = threading.Event(), f"intake {keys.model}", self._worker
        executor = worker.connect("take", blocking_timeout_s(BELL_TIMEOUT_S))
        loop = self._context.watchdog.watch(name, BELL_TIMEOUT_S, Pace(back_off=PROMPT))
        intake = Intake(worker, keys, executor, over, loop)
        thread = self._context.make_thread(name, intake, worker.fail)
        self._intakes[keys.model] = (thread, over)
        thread.start()

    def _end_intakes(self) -> None:
        self._worker.stop_taking()
        namespace = self._context.settings.namespace
        bells = [
            membership.ring(ModelKeys(namespace, model), self._worker.name)
            for model in self._intakes
        ]
        try:
            self._executor.run_all(bells)
        except ServerError as error:
            self._context.outage.begins(error)
        for thread, _ in self._intakes.values():
            thread.join(_JOIN_S)

    @property
    def was_ready(self) -> bool:
        """Whether it was reported that the worker is ready."""
        return self._on_ready is None

    def _report_ready(self) -> None:
        if self._on_ready is None or not self._all_settled():
            return
        names = sorted({model for model, _ in self._lanes})
        self._on_ready({"worker": self._worker.name, "models": names})
        self._on_ready = None

    def _all_settled(self) -> bool:
        """Whether every lane is loaded or refused, and every model joined."""
        lanes = self._lanes.values()
        heartbeat = self._worker.heartbeat
        is_joined = heartbeat.models_joined == len({lane.model for lane in lanes})
        is_settled = all(lane.ready or lane.refusal for lane in lanes)
        return is_joined and heartbeat.is_announced and self._has_looked and is_settled


def _lane_state(lane: Lane) -> dict[str, str]:
    if lane.refusal:
        return {"state": REFUSED, "reason": lane.refusal}
    return {"state": READY if lane.ready else LOADING}


def device_misfit(record: VersionRecord, device: str) -> str:
    """Why a version cannot run on a device; empty where it can."""
    kind = device.partition(":")[0]
    if record.device in ("any", kind):
        return ""
    return f"it needs {record.device}, this worker has {device}"
