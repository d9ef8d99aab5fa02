"""The keeper of a worker: follows the deploy records, and ends the worker when it is over."""

import socket
from collections.abc import Callable, Mapping
from enum import Enum
from os import getpid

from ...broker.advice import advise
from ...broker.interface import COMMAND_TIMEOUT_S
from ...broker.rights import WORKER, require_rights
from ...service.lifecycle import StopSignal
from ...service.steps import Steps
from ...wire.announcements import WorkerAnnouncement
from ...wire.deployment import Deployment, Stamp
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from .cancelled import CancelWatch
from .free_memory import FreeMemory
from .intake_threads import IntakeThreads
from .lanes import Lanes, lane_state
from .records import DeployRecords
from .recovery import Recovery
from .worker import Worker

_TICK_S = 0.1

OnReady = Callable[[dict[str, object]], None]


class Outcome(Enum):
    """How a worker's life ended."""

    STOPPED = "stopped"
    FENCED = "fenced"
    STRANDED = "stranded"


class WorkerKeeper:
    """The main thread of one worker.

    Each tick watches limits; every `refresh_ms`, or when intake asks for it, it reads the deploy
    records first and opens and drops lanes.
    """

    def __init__(self, worker: Worker, on_ready: OnReady) -> None:
        settings = worker.context.settings
        self._worker = worker
        self._context = worker.context
        self._on_ready: OnReady | None = on_ready
        self._executor = worker.connect("keeper")
        self._steps = Steps(self._context.outage)
        self._records = DeployRecords(settings, self._context.events, self._steps)
        self._lanes = Lanes(worker)
        self._free_memory = FreeMemory(worker)
        self._intakes = IntakeThreads(worker)
        self._recovery = Recovery(worker, self._executor)
        self._cancel_watch = CancelWatch(worker, self._executor, settings.namespace, self._steps)
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
        self._refresh_soon_if_asked()
        if self._loop.delay_s() == 0:
            self._ask_server()
        self._worker.watch_limits()
        self._is_stranded |= self._lanes.drop_stranded()
        self._lanes.move()
        self._announce_changes()
        self._report_ready()
        self._context.watchdog.look()
        self._context.devices.reap()

    def _refresh_soon_if_asked(self) -> None:
        if self._worker.wants_records.is_set():
            self._worker.wants_records.clear()
            # Not at once again, where the server holds to another record than can be read.
            soon_ms = self._refreshed_ms + 1000 * _TICK_S
            self._next_refresh_ms = min(self._next_refresh_ms, soon_ms)

    def _ask_server(self) -> None:
        now_ms, loop, steps = self._worker.now_ms(), self._loop, self._steps
        is_due = now_ms >= self._next_refresh_ms
        steps.begin()
        try:
            if is_due:
                self._refreshed_ms = now_ms
                steps.run("refresh", "", self._refresh)
                self._next_refresh_ms = now_ms + self._context.settings.refresh_ms
            known, lanes = self._records.known, self._lanes.all()
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

    def _refresh(self) -> None:
        if not self._has_looked:
            namespace, example = self._context.settings.namespace, self._records.example
            require_rights(self._executor, WORKER, namespace, example)
        self._worker.measure_server_offset(self._executor)
        deployments = self._records.read(self._executor, self._worker.now_ms())
        self._lanes.match(deployments)
        self._worker.use_records(deployments)
        self._intakes.match(deployments)  # before the worker leaves a model
        self._announce(deployments)
        if not self._has_looked:
            advise(self._executor, self._context.events, self._context.settings)
        self._has_looked = True

    def _announce_changes(self) -> None:
        """Announce at once what is ready or refused now: programs that wait for it look there."""
        states = self._lanes.states()
        if states != self._announced_states:
            self._announced_states = states
            self._announce(self._records.known)

    def _announce(self, deployments: Mapping[str, Deployment]) -> None:
        namespace = self._context.settings.namespace
        self._worker.heartbeat.announce(
            {
                ModelKeys(namespace, model): self._announcement(model, deployment.stamp)
                for model, deployment in deployments.items()
            }
        )

    def _announcement(self, model: str, stamp: Stamp) -> dict[str, str]:
        lanes = self._lanes.of(model)
        return WorkerAnnouncement(
            versions={lane.version: lane_state(lane) for lane in lanes},
            stamp=stamp,
            stalled=", ".join(self._context.watchdog.stalled),
            facts={
                "device": self._context.settings.device,
                "host": socket.gethostname(),
                "pid": str(getpid()),
                **self._free_memory.fact(),
                "room": str(sum(2 * one.limits.max_batch_size for one in lanes if one.is_able)),
            },
        ).to_fields()

    @property
    def was_ready(self) -> bool:
        """Whether it was reported that the worker is ready."""
        return self._on_ready is None

    def _report_ready(self) -> None:
        if self._on_ready is None or not self._all_settled():
            return
        names = sorted({lane.model for lane in self._lanes.all()})
        self._on_ready({"worker": self._worker.name, "models": names})
        self._on_ready = None

    def _all_settled(self) -> bool:
        """Whether every lane is loaded or refused, and every model joined."""
        lanes, heartbeat = self._lanes.all(), self._worker.heartbeat
        is_joined = heartbeat.models_joined == len({lane.model for lane in lanes})
        is_settled = all(lane.ready or lane.refusal for lane in lanes)
        return is_joined and heartbeat.is_announced and self._has_looked and is_settled

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
        self._intakes.stop(self._executor)
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
