"""Settles what is over: writes answers, parks what runs again. On the device thread of a unit."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol

from ...broker import later, requests
from ...broker.commands import Command
from ...broker.errors import UnusableKeyError
from ...broker.interface import Executor
from ...broker.later import Retried
from ...broker.requests import Finished
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from ..batching.finish_items import finish_item
from ..batching.retrying import retry_delay_ms
from ..batching.state import EndedRequest
from .context import WorkerContext


class Teller(Protocol):
    """What settling needs of the worker."""

    name: str
    context: WorkerContext
    server_offset_ms: float

    def now_ms(self) -> float:
        """Monotonic time."""

    def inside_note(self, keys: ModelKeys) -> list[Command[int]]:
        """The command that tells peers what is in the device processes; none where that is told."""


class Settler:
    """Owns the connection that one unit settles on."""

    def __init__(self, worker: Teller, executor: Executor) -> None:
        self._worker = worker
        self._executor = executor
        self._keys: dict[str, ModelKeys] = {}  # by model
        self._chance = Random(worker.name)  # noqa: S311 - spreads retries, guards nothing

    def close(self) -> None:
        """Close the connection."""
        self._executor.close()

    def settle(self, ended: Sequence[EndedRequest]) -> tuple[list[EndedRequest], list[ServerError]]:
        """Settle requests; returns those that the server would not take, and why."""
        by_model: dict[str, list[EndedRequest]] = {}
        for one in ended:
            by_model.setdefault(one.held.lane.model, []).append(one)
        left: list[EndedRequest] = []
        errors: list[ServerError] = []
        for model, some in by_model.items():
            unsettled, error = self._settle_model(self._keys_of(model), some)
            left += unsettled
            errors += [] if error is None else [error]
        return left, errors

    def _keys_of(self, model: str) -> ModelKeys:
        keys = self._keys.get(model)
        if keys is None:
            keys = ModelKeys(self._worker.context.settings.namespace, model)
            self._keys[model] = keys
        return keys

    def _settle_model(
        self, keys: ModelKeys, ended: Sequence[EndedRequest]
    ) -> tuple[list[EndedRequest], ServerError | None]:
        over, again = self._divide(ended)
        left = {one.held.number: one for one in (*over, *(one for one, _ in again))}
        try:
            for settled in self._finish(keys, over):
                del left[settled.held.number]
            unparked: list[EndedRequest] = []
            for one, delay_ms in again:
                if self._is_parked(keys, one, delay_ms):
                    del left[one.held.number]
                else:
                    unparked.append(one)
            for settled in self._finish(keys, unparked):
                del left[settled.held.number]
        except ServerError as error:
            return list(left.values()), error
        # What is left now has a letter that could not be written: later it may.
        return list(left.values()), _letterless(keys) if left else None

    def _divide(
        self, ended: Sequence[EndedRequest]
    ) -> tuple[list[EndedRequest], list[tuple[EndedRequest, int]]]:
        """What is over for good, and what runs again, with its pause."""
        over: list[EndedRequest] = []
        again: list[tuple[EndedRequest, int]] = []
        now_ms = self._worker.now_ms()
        for one in ended:
            delay_ms = None
            if one.failure is not None:
                delay_ms = retry_delay_ms(one, now_ms, self._chance)
            if delay_ms is None:
                over.append(one)
            else:
                again.append((one, delay_ms))
        return over, again

    def _finish(self, keys: ModelKeys, ended: Sequence[EndedRequest]) -> Iterator[EndedRequest]:
        """Write answers; gives each request that is settled."""
        worker = self._worker
        items = [finish_item(one, keys, worker.name, worker.server_offset_ms) for one in ended]
        at = 0
        for some in requests.split_finish(items):
            finish = requests.finish(keys, worker.name, some)
            worker.context.faults.reach("worker.before_finish")
            outcomes = self._executor.run_all([finish, *worker.inside_note(keys)])[0]
            worker.context.faults.reach("worker.after_finish")
            for one, outcome in zip(ended[at : at + len(some)], outcomes, strict=True):
                if outcome is not Finished.KEPT:
                    yield one
            at += len(some)

    def _is_parked(self, keys: ModelKeys, one: EndedRequest, delay_ms: int) -> bool:
        """Have a request run again later; False where a foreign key is in the way of that."""
        held = one.held
        bell = keys.bell(held.lane.version)
        self._worker.context.faults.reach("worker.before_park")
        command = later.retry(keys, self._worker.name, held.entry, bell, delay_ms)
        if self._executor.run(command) is Retried.STALE:
            return False
        self._worker.context.events.emit(
            "request.retried", model=keys.model, attempt=held.entry.attempt, delay_ms=delay_ms
        )
        return True


def _letterless(keys: ModelKeys) -> UnusableKeyError:
    text = f"dead letters cannot be written to {keys.dead}; their requests are not answered yet"
    return UnusableKeyError("WRONGTYPE", text)
