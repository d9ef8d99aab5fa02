"""Settles what is over: writes answers, parks what runs again. On the device thread of a unit."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random

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
from .shared_state import SharedState

NoteInside = Callable[[ModelKeys], list[Command[int]]]


class Finisher:
    """Owns the connection that one unit settles on.

    `note_inside` gives the command that tells peers what is in the worker's device processes.
    """

    def __init__(self, worker: SharedState, executor: Executor, note_inside: NoteInside) -> None:
        self._worker = worker
        self._note_inside = note_inside
        self._executor = executor
        self._keys: dict[str, ModelKeys] = {}  # by model
        self._chance = Random(worker.name)  # noqa: S311 - spreads pauses, guards nothing

    def close(self) -> None:
        """Close the connection."""
        self._executor.close()

    def settle(self, batch: Sequence[EndedRequest]) -> tuple[list[EndedRequest], list[ServerError]]:
        """Settle requests; returns those that the server would not take, and why."""
        by_model: dict[str, list[EndedRequest]] = {}
        for ended in batch:
            by_model.setdefault(ended.held.lane.model, []).append(ended)
        left: list[EndedRequest] = []
        errors: list[ServerError] = []
        for model, of_model in by_model.items():
            unsettled, error = self._settle_model(self._keys_of(model), of_model)
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
        self, keys: ModelKeys, batch: Sequence[EndedRequest]
    ) -> tuple[list[EndedRequest], ServerError | None]:
        over, again = self._divide(batch)
        left = {ended.held.number: ended for ended in (*over, *(ended for ended, _ in again))}
        try:
            for settled in self._answer(keys, over):
                del left[settled.held.number]
            unparked: list[EndedRequest] = []
            for ended, delay_ms in again:
                if self._is_parked(keys, ended, delay_ms):
                    del left[ended.held.number]
                else:
                    unparked.append(ended)
            for settled in self._answer(keys, unparked):
                del left[settled.held.number]
        except ServerError as error:
            return list(left.values()), error
        # What is left now has a letter that could not be written: later it may.
        return list(left.values()), _letterless(keys) if left else None

    def _divide(
        self, batch: Sequence[EndedRequest]
    ) -> tuple[list[EndedRequest], list[tuple[EndedRequest, int]]]:
        """What is over for good, and what runs again, with its pause."""
        over: list[EndedRequest] = []
        again: list[tuple[EndedRequest, int]] = []
        now_ms = self._worker.now_ms()
        for ended in batch:
            delay_ms = retry_delay_ms(ended, now_ms, self._chance)
            if delay_ms is None:
                over.append(ended)
            else:
                again.append((ended, delay_ms))
        return over, again

    def _answer(self, keys: ModelKeys, over: Sequence[EndedRequest]) -> Iterator[EndedRequest]:
        """Write answers; gives each request that is settled."""
        worker, faults = self._worker, self._worker.context.faults
        now_ms, offset_ms = worker.now_ms(), worker.server_offset_ms
        items = [finish_item(ended, keys, worker.name, now_ms, offset_ms) for ended in over]
        waiting = iter(over)
        for portion in requests.split_finish(items):
            finish = requests.finish(keys, worker.name, portion)
            faults.reach("worker.before_finish")
            outcomes = self._executor.run_all([finish, *self._note_inside(keys)])[0]
            faults.reach("worker.after_finish")
            for ended, outcome in zip(islice(waiting, len(portion)), outcomes, strict=True):
                if outcome is not Finished.KEPT:
                    yield ended

    def _is_parked(self, keys: ModelKeys, ended: EndedRequest, delay_ms: int) -> bool:
        """Have a request run again later; False where a foreign key is in the way of that."""
        held = ended.held
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
