"""The intake threads of a worker, one per model."""

import threading
from collections.abc import Collection

from ...broker import membership
from ...broker.interface import Executor, blocking_timeout_s
from ...service.lifecycle import Thread
from ...service.watchdog import PROMPT, Pace
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from .intake import BELL_TIMEOUT_S, Intake
from .worker import Worker

_JOIN_S = 5.0


class IntakeThreads:
    """Starts and ends threads as the deploy records require. Owned by the keeper's thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._context = worker.context
        self._running: dict[str, tuple[Thread, threading.Event]] = {}

    def match(self, models: Collection[str]) -> None:
        """Take from these models, and from no others."""
        for model in [model for model in self._running if model not in models]:
            _, over = self._running.pop(model)
            over.set()
        for model in models:
            if model not in self._running:
                self._start(self._keys(model))

    def _keys(self, model: str) -> ModelKeys:
        return ModelKeys(self._context.settings.namespace, model)

    def _start(self, keys: ModelKeys) -> None:
        over, name, worker = threading.Event(), f"intake {keys.model}", self._worker
        executor = worker.connect("take", blocking_timeout_s(BELL_TIMEOUT_S))
        loop = self._context.watchdog.watch(name, BELL_TIMEOUT_S, Pace(back_off=PROMPT))
        intake = Intake(worker, keys, executor, over, loop)
        thread = self._context.make_thread(name, intake, worker.fail)
        self._running[keys.model] = (thread, over)
        thread.start()

    def stop(self, executor: Executor) -> None:
        """End all of them; their bells are rung, since they may be waiting."""
        self._worker.stop_taking()
        bells = [membership.ring(self._keys(model), self._worker.name) for model in self._running]
        try:
            executor.run_all(bells)
        except ServerError as error:
            self._context.outage.begins(error)
        for thread, _ in self._running.values():
            thread.join(_JOIN_S)
