"""Looks every second which rolls have something due, and has it queued. One thread of `jobs`."""

from collections.abc import Callable
from dataclasses import dataclass

from ...broker import fleet, rolls
from ...service.clock import Clock
from ...wire.errors import BatchfleetError, SettingsError
from ..deployment import Operator
from .deciding import decide
from .observing import keep_moment, look_at
from .queue import Step, StepQueue

# rq's own scheduler and maintenance find a job that nobody finished after minutes.
OVERDUE_MS = 5_000.0


@dataclass(slots=True)
class _Seen:
    """A step that is due, and when this watcher first found it queued (monotonic ms)."""

    step: Step
    since_ms: float


class Watcher:
    """What is due is queued; what is queued and not done after five seconds is queued again.

    Args:
        operator: of the fleet.
        queue: of the steps.
        clock: for the time between two looks.
        tell_unreadable: called with a model and why its state is not followed, once each.
    """

    def __init__(
        self,
        operator: Operator,
        queue: StepQueue,
        clock: Clock,
        tell_unreadable: Callable[[str, str], object],
    ) -> None:
        self._operator = operator
        self._queue = queue
        self._clock = clock
        self._tell_unreadable = tell_unreadable
        self._told: dict[str, str] = {}
        self._due: dict[str, _Seen] = {}

    def look(self) -> None:
        """Look at all models once.

        Raises:
            ServerError: the server failed.
        """
        executor, namespace = self._operator.executor, self._operator.namespace
        models = executor.run(fleet.models(namespace))
        raws = executor.run_each([rolls.roll(self._operator.keys(name)) for name in models])
        rolling = [name for name, raw in zip(models, raws, strict=True) if raw]
        for model in rolling:
            try:
                self._look_at(model)
                self._told.pop(model, None)
            except SettingsError as error:
                self._report(model, error)
        self._due = {name: seen for name, seen in self._due.items() if name in rolling}

    def _report(self, model: str, error: BatchfleetError) -> None:
        self._due.pop(model, None)
        if self._told.get(model) != str(error):
            self._told[model] = str(error)
            self._tell_unreadable(model, str(error))

    def _look_at(self, model: str) -> None:
        look = look_at(self._operator, model)
        if look is None or look.state.has_ended:
            self._due.pop(model, None)
            return
        keep_moment(self._operator, look)
        if not decide(look.state, look.seen, look.now_ms).is_due:
            self._due.pop(model, None)
            return
        self._have_taken(Step(model=model, epoch=look.deployment.epoch, step=look.state.step))

    def _have_taken(self, step: Step) -> None:
        now_ms, seen = self._clock.monotonic_ms(), self._due.get(step.model)
        if seen is not None and seen.step == step and now_ms - seen.since_ms >= OVERDUE_MS:
            self._queue.forget(step)
            seen = None
        if self._queue.add(step) or seen is None or seen.step != step:
            self._due[step.model] = _Seen(step, now_ms)
