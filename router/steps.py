"""The steps of the keeper, each apart: what fails for one model stops nothing else."""

from collections.abc import Callable
from typing import TypeVar

from ..service.clock import Clock
from ..service.events import Events
from ..service.logs import OncePerKind, shown_error
from ..service.outage import Outage
from ..wire.errors import Remedy, ServerError

T = TypeVar("T")

_WHOLE_SERVER = (Remedy.WAIT, Remedy.STOP)


class Steps:
    """Runs the steps of one pass after the other. Owned by the keeper's thread.

    An error that the server answers with, whatever it is, concerns the one step; so does an error
    that nobody foresaw, which is told once a minute and kind.
    """

    def __init__(self, events: Events, outage: Outage, clock: Clock) -> None:
        self._events = events
        self._outage = outage
        self._told = OncePerKind(clock)
        self._done = 0
        self._refusal: ServerError | None = None
        self._failed = False

    def begin(self) -> None:
        """Begin a pass."""
        self._done, self._refusal, self._failed = 0, None, False

    def run(self, step: str, model: str, action: Callable[[], T]) -> T | None:
        """Do one step for one model ("" = for all); None where it failed.

        Raises:
            ServerError: the whole server is away, or does not let us in.
        """
        try:
            found = action()
        except ServerError as error:
            if error.remedy in _WHOLE_SERVER:
                raise
            self._refusal = error
            self._outage.begins(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end what serves all
            self._failed = True
            self._tell(step, model, error)
        else:
            self._done += 1
            return found
        return None

    def _tell(self, step: str, model: str, error: Exception) -> None:
        self._told.summary()  # a minute later it is news again
        if self._told.admit(f"{step} {type(error).__name__}"):
            reason = shown_error(error)
            self._events.emit("router.step_failed", step=step, model=model, reason=reason)

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
