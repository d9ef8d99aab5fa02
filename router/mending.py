"""Mending: makes anew what a deployed model needs and the server has lost.

A foreign hand may delete a stream, a server may evict one, or come back without its data. Any
router does this; the script behind it makes nothing that an operator took out of service.
"""

from collections.abc import Callable

from ..broker import fleet
from ..broker.commands import Command
from ..broker.errors import UnusableKeyError, UnwritableError
from ..broker.fleet import MARKED, RESTORED, UNDEPLOYED_MARK_MS
from ..broker.interface import Executor
from ..service.events import Events
from .view import FleetView, ModelView


class Mending:
    """Remembers what was deployed. Owned by the keeper's thread.

    A memory older than half the life of an undeployed model's mark is dropped: nobody could tell
    any more whether a model that is not there was lost or taken out of service.
    """

    def __init__(self, events: Events, draw_nonce: Callable[[], str]) -> None:
        self._events = events
        self._draw_nonce = draw_nonce
        self._known: dict[str, ModelView] = {}
        self._unusable: set[str] = set()  # models whose fault was told
        self._seen_ms = 0.0

    def look(self, executor: Executor, view: FleetView, now_ms: float) -> bool:
        """Mend what is missing, just after `view` was read; whether records were restored.

        Raises:
            ServerError: the server failed.
        """
        if now_ms - self._seen_ms > UNDEPLOYED_MARK_MS / 2:
            self._known = {}
        self._seen_ms = now_ms
        self._known |= view.models
        restored = False
        for name, model in list(self._known.items()):
            outcome = self._mend(executor, model)
            if outcome is None:
                continue
            is_missing = name not in view.models
            if outcome == MARKED or name in view.faults:
                del self._known[name]
                continue
            if is_missing:
                executor.run(fleet.enlist_model(model.keys.namespace, name))
                restored = True
            if outcome == RESTORED:
                self._events.emit("model.restored", model=name)
            elif outcome > 0:
                self._events.emit("model.mended", model=name, count=outcome)
        return restored

    def _mend(self, executor: Executor, model: ModelView) -> int | None:
        """The outcome; None where it cannot be done for now, which must not stop the rest."""
        name = model.keys.model
        try:
            outcome = executor.run(self._command(model))
        except UnwritableError:
            return None  # accepting meets the same, and tells of it
        except UnusableKeyError as error:
            if name not in self._unusable:
                self._unusable.add(name)
                self._events.emit("stream.unusable", model=name, reason=str(error))
            return None
        self._unusable.discard(name)
        return outcome

    def _command(self, model: ModelView) -> Command[int]:
        return fleet.mend(
            model.keys, model.record, model.tenants, _streams(model), self._draw_nonce()
        )


def _streams(model: ModelView) -> list[str]:
    return [
        stream
        for record in model.deployment.versions.values()
        for stream in fleet.queue_streams(model.keys, record)
    ]
