"""The steps of a keeper, each apart: what fails for one model stops nothing else."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..wire.errors import Remedy, ServerError, checked
from .clock import Clock
from .events import Events
from .logs import OncePerKind, shown_error
from .outage import Outage

T = TypeVar("T")

# What to do about these is no matter of one step.
_WHOLE_PROGRAM = (Remedy.WAIT, Remedy.STOP, Remedy.START_OVER)


def settled(answers: Sequence[Any]) -> Sequence[Any]:
    """Answers that came in one round trip.

    Raises:
        ServerError: the first of them that is an error.
    """
    return [checked(answer) for answer in answers]


class StepFaults:
    """Tells of errors that nobody foresaw, once a minute, step and kind."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._told = OncePerKind(clock)

    def tell(self, step: str, model: str, error: Exception) -> None:
        """A step failed by a fault of ours."""
        self._told.summary()  # a minute later it is news again
        if self._told.admit(f"{step} {type(error).__name__}"):
            reason = shown_error(error)
            self._events.emit("router.step_failed", step=step, model=model, reason=reason)


class Steps:
    """Runs the steps of one pass after the other. Owned by the keeper's thread.

    An error that the server answers with, whatever it is, concerns the one step. So does an error
    that nobody foresaw, where there are `faults` to tell it to; else it ends the pass.
    """

    def __init__(self, outage: Outage, faults: StepFaults | None = None) -> None:
        self._outage = outage
        self._faults = faults
        self._done = 0
        self._refusal: ServerError | None = None
        self._failed = False

    def begin(self) -> None:
        """Begin a pass."""
        self._done, self._refusal, self._failed = 0, None, False

    def run(self, step: str, model: str, action: Callable[[], T]) -> T | None:
        """Do one step for one model ("" = for all); None where it failed.

        Raises:
            ServerError: the whole server is away, or what the program is to do about it is more
                than to go on.
        """
        try:
            found = action()
        except ServerError as error:
            if error.remedy in _WHOLE_PROGRAM:
                raise
            self._refusal = error
            self._outage.begins(error)
        except Exception as error:
            if self._faults is None:
                raise
            self._failed = True
            self._faults.tell(step, model, error)
        else:
            self._done += 1
            return found
        return None

    def worked(self) -> bool:
        """Whether the pass did anything, or had nothing to do; if not, the next may wait.

        Raises:
            ServerError: the server has refused all of it.
        """
        if self._done:
            return True
        if self._refusal is not None:
            raise self._refusal
        return not self._failed
