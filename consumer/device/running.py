"""One batch on the device; one that fails runs again in halves until the culprit stands alone."""

from bdb import BdbQuit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...models.model import PredictContext
from ...models.stacking import stack_rows
from ...wire.errors import ErrorKind, RequestError
from ...wire.texts import kind_name
from .faults import is_failure, is_memory_error, model_error, pass_on_leaving, sound
from .lanes import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows to run together: what `predict` gets for each, and their exact lengths."""

    number: int
    values: Sequence[Any]
    lengths: Sequence[int]
    parameters: Mapping[str, Any]

    def part(self, start: int, end: int) -> "Batch":
        """The rows from `start` to before `end`."""
        return Batch(
            number=self.number,
            values=self.values[start:end],
            lengths=self.lengths[start:end],
            parameters=self.parameters,
        )


def run_batch(lane: Lane, batch: Batch) -> list[Any]:
    """Predict; returns for each row its output, or the `RequestError` that it ends in.

    After an exception or a wrong number of outputs both halves run on their own, so that a row
    fails for its own sake only. A batch that was too large for the device's memory succeeds so,
    and the next ones are cut before they are tried.
    """
    if not batch.values:
        return []
    memory = lane.memory
    before = memory.saved()
    was_cut = not memory.allows(len(batch.values), max(batch.lengths))
    try:
        results = _run_in_halves(lane, batch)
    except BdbQuit as error:  # not in halves: who quits does not want to stop again
        return [model_error(error, "predict", lane.logger)] * len(batch.values)
    if any(_is_short_of_memory(result) for result in results):
        memory.restore(before)
    elif was_cut and memory.saved() == before:
        memory.recover()
    return results


def _is_short_of_memory(result: Any) -> bool:
    return is_failure(result) and result.kind is ErrorKind.DEVICE_MEMORY


def _run_in_halves(lane: Lane, batch: Batch) -> list[Any]:
    count = len(batch.values)
    half = count // 2
    if not lane.memory.allows(count, max(batch.lengths)):
        return _run_parts(lane, batch, half)
    try:
        return _predict(lane, batch)
    except BdbQuit:
        raise
    except BaseException as error:  # noqa: BLE001  a model may raise anything; it becomes a typed error
        pass_on_leaving(error, "predict", lane.logger)
        if count == 1:
            return [model_error(error, "predict", lane.logger)]
        if is_memory_error(error):
            lane.memory.halve(count, max(batch.lengths))
        lane.logger.warning(
            "batch_failed",
            rows=count,
            error_type=kind_name(error),
            out_of_memory=is_memory_error(error),
            **({"reason": sound(error).message} if is_failure(error) else {}),
        )
    # Outside of the handler: the exception's frames hold the failed batch's arrays.
    return _run_parts(lane, batch, half)


def _run_parts(lane: Lane, batch: Batch, half: int) -> list[Any]:
    rest = batch.part(half, len(batch.values))
    return _run_in_halves(lane, batch.part(0, half)) + _run_in_halves(lane, rest)


def outputs_of(lane: Lane, batch: Batch) -> list[Any]:
    """Predict; for batches of our own, all of whose rows must succeed.

    Raises:
        RequestError: of the first row that failed.
    """
    outputs = run_batch(lane, batch)
    for output in outputs:
        if is_failure(output):
            raise output
    return outputs


def _predict(lane: Lane, batch: Batch) -> list[Any]:
    model = lane.model
    context = PredictContext(
        lengths=batch.lengths,
        parameters=batch.parameters,
        device=lane.device,
        batch=batch.number,
    )
    rows: Any = batch.values
    if model.stack:
        rows = stack_rows(batch.values, batch.lengths, model.pad_side, model.pad_value)
    outputs = model.predict(rows, context)
    count = len(batch.values)
    is_sequence = isinstance(outputs, list | tuple) or (
        isinstance(outputs, np.ndarray) and outputs.ndim > 0
    )
    results = list(outputs) if is_sequence else []
    if not is_sequence or len(results) != count:
        given = f"{len(results)} outputs" if is_sequence else kind_name(outputs)
        raise RequestError.of(
            ErrorKind.BAD_OUTPUT, f"predict gave {given} for {count} rows; one for each is expected"
        )
    return [sound(result) if is_failure(result) else result for result in results]
