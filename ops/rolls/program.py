"""The program `jobs`: takes the steps of rolls, and sees that somebody does."""

from collections.abc import Callable
from functools import partial
from os import getpid
from random import Random
from secrets import token_hex
from socket import gethostname

from ...broker import fleet, rolls
from ...broker.blocking import BlockingExecutor
from ...broker.interface import COMMAND_TIMEOUT_S
from ...broker.jobs import jobs_client
from ...broker.rights import OPERATOR, require_rights
from ...models.store import Store
from ...service.clock import Clock
from ...service.events import Events
from ...service.fault_points import FaultPoints
from ...service.identity import new_worker_name
from ...service.lifecycle import StopSignal, run_steps, stepped_thread
from ...service.logs import OncePerKind, shown_error
from ...service.outage import Outage
from ...service.settings import Settings
from ...service.watchdog import PROMPT, Loop, Pace, Watchdog
from ...wire.errors import ErrorKind, RequestError, ServerError, StoreError
from ..deployment import ChangedError, Operator
from .queue import StepQueue
from .state import RollState
from .steps import StepContext, take_step
from .watching import Watcher

_LOOK_S = 1.0
_PACE = Pace(back_off=PROMPT, goes_first=True)
# rq waits a second for a job, and has its own ideas of a time-out: at least this.
_QUEUE_TIMEOUT_S = 11.0


class JobsProgram:
    """One jobs worker: the main thread takes steps, the watcher's thread has them queued."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        clock: Clock,
        faults: FaultPoints | None = None,
    ) -> None:
        self._settings = settings
        self._faults = faults or FaultPoints()
        self._events = events
        self._clock = clock
        self._name = new_worker_name(f"j-{gethostname()}", getpid(), token_hex(4))
        self._watchdog = Watchdog(events, clock, Outage(events, clock), Random())  # noqa: S311
        self._failures = OncePerKind(clock)
        self._failure: BaseException | None = None
        self._queue = self._new_queue()
        self._worker = self._queue.worker(self._name, gethostname(), getpid())

    def _new_queue(self) -> StepQueue:
        url = self._settings.jobs_redis_url or self._settings.redis_url
        return StepQueue(jobs_client(url, _QUEUE_TIMEOUT_S), self._settings.namespace)

    def run(self, stop: StopSignal, on_ready: Callable[[dict[str, object]], None]) -> int:
        """Take steps until `stop`; returns the exit code.

        Raises:
            DeniedError: a server does not let us in; trying again would not help.
        """
        watching = self._watching(stop)
        thread = stepped_thread("watcher", watching, partial(self._fail, stop))
        loop = self._watchdog.watch("queue", _QUEUE_TIMEOUT_S, _PACE)
        has_entered = False
        try:
            while not stop.is_set():
                if pause_s := loop.delay_s():
                    stop.wait(min(pause_s, _LOOK_S))
                    continue
                try:
                    if not has_entered:
                        self._enter()
                        has_entered = True
                        thread.start()
                        on_ready({"worker": self._name})
                    self._work(loop)
                except ServerError as error:
                    loop.failed(error)
                self._watchdog.look()
        finally:
            stop.set()
            loop.end()
            if has_entered:
                thread.join(2 * COMMAND_TIMEOUT_S)
                self._leave()
        self._events.emit("jobs.stopped", worker=self._name)
        if self._failure is not None:
            raise self._failure
        return 0

    def _watching(self, stop: StopSignal) -> "Watching":
        executor = self._executor("watcher")
        operator = new_operator(executor, self._settings.namespace, self._name)
        watcher = Watcher(operator, self._new_queue(), self._clock, self._tell_unreadable)
        return Watching(self._name, operator, watcher, self._watchdog, stop)

    def _tell_unreadable(self, model: str, reason: str) -> None:
        self._events.emit("roll.unreadable", model=model, reason=reason)

    def _fail(self, stop: StopSignal, error: BaseException) -> None:
        self._failure = error
        stop.set()

    def _enter(self) -> None:
        with self._executor("jobs") as executor:
            require_rights(executor, OPERATOR, self._settings.namespace)
        self._worker.enter()
        self._events.emit("jobs.started", worker=self._name)

    def _executor(self, what: str) -> BlockingExecutor:
        return BlockingExecutor(self._settings.redis_url, f"{self._name}-{what}")

    def _work(self, loop: Loop) -> None:
        for failure in (self._worker.beat(), self._worker.run_next(self._take)):
            if failure is not None:
                self._report(failure)
        loop.worked()

    def _take(self, model: str) -> None:
        """Take one step on a connection of its own: its time limit may break it off anywhere."""
        self._faults.reach("jobs.before_step")
        with self._executor("step") as executor:
            context = StepContext(
                operator=new_operator(executor, self._settings.namespace, self._name),
                store=Store(self._settings.store),
                tell=self._tell,
                tell_copy=self._tell_copy,
            )
            try:
                take_step(context, model)
            except ChangedError:
                pass  # whoever changed it has done this step, or made it needless
            except RequestError as error:
                if error.kind is not ErrorKind.UNKNOWN_MODEL:
                    raise
        self._faults.reach("jobs.after_step")

    def _tell(self, state: RollState) -> None:
        self._events.emit(
            "roll.changed",
            model=state.model,
            version=state.target,
            phase=state.phase.value,
            weight=state.weight,
            reason=state.reason,
        )

    def _tell_copy(self, model: str, error: StoreError) -> None:
        self._events.emit("roll.not_copied", model=model, reason=str(error))

    def _report(self, error: BaseException) -> None:
        self._failures.summary()  # a minute later it is news again
        if self._failures.admit(type(error).__name__):
            reason = shown_error(error) if isinstance(error, Exception) else repr(error)
            self._events.emit("jobs.step_failed", reason=reason)

    def _leave(self) -> None:
        outage = self._watchdog.outage
        if outage.is_on:  # nobody can be told, and a stop must not wait for it
            return
        try:
            self._worker.leave()
        except ServerError as error:
            outage.begins(error)


def new_operator(executor: BlockingExecutor, namespace: str, name: str) -> Operator:
    """An operator whose changes are known by the name of this jobs worker."""
    return Operator(
        executor=executor, namespace=namespace, draw_nonce=lambda: f"{name}:{token_hex(8)}"
    )


class Watching:
    """The watcher's thread: looks, and announces that the worker lives."""

    def __init__(
        self, name: str, operator: Operator, watcher: Watcher, watchdog: Watchdog, stop: StopSignal
    ) -> None:
        self._name = name
        self._operator = operator
        self._watcher = watcher
        self._watchdog = watchdog
        self._loop = watchdog.watch("watcher", COMMAND_TIMEOUT_S, _PACE)
        self._stop = stop

    def step(self) -> float | None:
        """Look once."""
        if self._stop.is_set():
            return None
        if pause_s := self._loop.delay_s():
            return pause_s
        try:
            executor, namespace = self._operator.executor, self._operator.namespace
            now_ms = executor.run(fleet.server_time())
            executor.run_all(rolls.announce_jobs(namespace, self._name, now_ms))
            self._watcher.look()
            self._loop.worked()
        except ServerError as error:
            self._loop.failed(error)
        return _LOOK_S

    def run(self) -> None:
        """Look every second until the stop signal."""
        run_steps(self, self._stop.wait)

    def close(self) -> None:
        """Leave the list of jobs workers, and disconnect."""
        self._loop.end()
        if not self._watchdog.outage.is_on:
            try:
                command = rolls.leave_jobs(self._operator.namespace, self._name)
                self._operator.executor.run(command)
            except ServerError as error:
                self._watchdog.outage.begins(error)
        self._operator.executor.close()
