"""Mending: restores what a deployed model needs and the server has lost.

Somebody may delete a stream; a server may evict one, or come back without its data. Any
router does this; the script behind it makes nothing that an operator took out of service.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..broker import fleet
from ..broker.commands import Command
from ..broker.errors import UnusableKeyError, UnwritableError
from ..broker.fleet import MARKED, RESTORED, UNDEPLOYED_MARK_MS
from ..broker.interface import Executor
from ..service.events import Events
from ..service.steps import Steps
from .view import FleetView, ModelView


class Mending:
    """Remembers what was deployed. Owned by the keeper's thread.

    After half the lifetime of an undeployed model's mark it forgets all: a model that is not there
    may have been undeployed as well as lost.
    """

    def __init__(self, events: Events, steps: Steps, draw_nonce: Callable[[], str]) -> None:
        self._events = events
        self._steps = steps
        self._draw_nonce = draw_nonce
        self._known: dict[str, ModelView] = {}
        self._unusable: set[str] = set()  # models whose fault was reported
        self._seen_ms = 0.0

    def look(self, executor: Executor, view: FleetView, now_ms: float) -> bool:
        """Mend what is missing, just after `view` was read; whether anything was.

        Raises:
            ServerError: the server failed.
        """
        if now_ms - self._seen_ms > UNDEPLOYED_MARK_MS / 2:
            self._known = {}
        self._seen_ms = now_ms
        for name, model in view.models.items():
            self._known[name] = remembered(self._known.get(name), model)
        mended = False
        unlisted: list[str] = []
        for name, model in list(self._known.items()):
            # An invalid record must be fixed by an operator.
            if name not in view.aside:
                mend = partial(self._mend, executor, model, is_reported=name in view.foreign)
                outcome = self._steps.run("mend", name, mend)
                if outcome is not None:
                    mended |= outcome != 0
                    unlisted += [] if name in view.models else [name]
        if unlisted:
            # All at once: while none is listed, callers know that the server has lost everything.
            self._steps.run("list", "", partial(self._enlist, executor, unlisted))
        return mended or bool(unlisted)

    def _enlist(self, executor: Executor, models: Sequence[str]) -> None:
        namespace = self._known[models[0]].keys.namespace
        executor.run(fleet.enlist_models(namespace, models))

    def _mend(self, executor: Executor, model: ModelView, *, is_reported: bool) -> int | None:
        """What was made of a model; None where nothing can be, or is to be."""
        name = model.keys.model
        outcome = self._run(executor, model, is_reported=is_reported)
        if outcome == MARKED:
            del self._known[name]
            return None
        if outcome == RESTORED:
            self._events.emit("model.restored", model=name)
        elif outcome:
            self._events.emit("model.mended", model=name, count=outcome)
        return outcome

    def _run(self, executor: Executor, model: ModelView, *, is_reported: bool) -> int | None:
        """The outcome; None where it cannot be done for now."""
        name = model.keys.model
        try:
            outcome = executor.run(self._command(model))
        except UnwritableError:
            return None  # accepting fails in the same way, and reports it
        except UnusableKeyError as error:
            if name not in self._unusable and not is_reported:
                self._unusable.add(name)
                self._events.emit("stream.unusable", model=name, reason=str(error))
            return None
        self._unusable.discard(name)
        return outcome

    def _command(self, model: ModelView) -> Command[int]:
        return fleet.mend(
            model.keys, model.record, model.tenants, _streams(model), self._draw_nonce()
        )


def remembered(known: ModelView | None, found: ModelView) -> ModelView:
    """What to remember of a model: what was found, but for what was known better. Pure.

    Known better is a record that another router has put back as it was before ours, and tenants
    where none were found: no model is deployed for nobody.
    """
    if known is None:
        return found
    epoch, was_restored = fleet.known_epoch(found.record)
    if was_restored and epoch < fleet.known_epoch(known.record)[0]:
        return known
    return found if found.tenants else replace(found, tenants=known.tenants)


def _streams(model: ModelView) -> list[str]:
    return [
        stream
        for record in model.deployment.versions.values()
        for stream in fleet.queue_streams(model.keys, record)
    ]
