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
from .faults import (
    cleaned,
    is_failure,
    is_memory_error,
    model_error,
    raise_if_model_left,
    request_error,
)
from .loaded_models import NOT_AT_HAND, LoadedModel, PreparedRequest, TakenRow
from .preparing import value_again
from .snapshot import snapshot

RowErrors = list[tuple[int, RequestError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBatch:
    """Rows to run together, of requests with equal parameters."""

    number: int
    rows: Sequence[TakenRow]
    lengths: Sequence[int]

    @property
    def longest(self) -> int:
        """Length that all rows are padded to."""
        return max(self.lengths)

    def part(self, start: int, end: int) -> "ModelBatch":
        """The rows from `start` to before `end`."""
        return ModelBatch(
            number=self.number, rows=self.rows[start:end], lengths=self.lengths[start:end]
        )


def batch_of(number: int, rows: Sequence[TakenRow]) -> ModelBatch:
    """Rows to run together, with their lengths."""
    return ModelBatch(
        number=number, rows=rows, lengths=[request.lengths[place] for request, place in rows]
    )


def run_batch(loaded: LoadedModel, batch: ModelBatch) -> list[Any]:
    """Predict; returns for each row its output, or the `RequestError` that it ends in.

    After an exception or a wrong number of outputs both halves run on their own, so that a row
    fails for its own sake only. A batch that was too large for the device's memory succeeds so,
    and the next ones are cut before they are tried. What ran is prepared again before it runs
    again: the failed run may have changed it.

    The outputs are to be encoded or kept (`keep_output`) before the model runs again.
    """
    if not batch.rows:
        return []
    memory = loaded.memory
    before = memory.saved()
    was_cut = not memory.allows(len(batch.rows), batch.longest)
    try:
        results = _run_in_halves(loaded, batch)
    except BdbQuit as error:  # not in halves: who quits does not want to stop again
        return [model_error(error, "predict", loaded.logger)] * len(batch.rows)
    if any(_is_short_of_memory(result) for result in results):
        memory.restore(before)
    elif was_cut and memory.saved() == before:
        memory.recover()
    return results


def _is_short_of_memory(result: Any) -> bool:
    return is_failure(result) and result.kind is ErrorKind.DEVICE_MEMORY


def _run_in_halves(loaded: LoadedModel, batch: ModelBatch) -> list[Any]:
    count = len(batch.rows)
    if not loaded.memory.allows(count, batch.longest):
        return _run_parts(loaded, batch)
    values, errors = _take_values(loaded, batch.rows)
    if errors:
        return _run_the_rest(loaded, batch, errors)
    try:
        return _predict(loaded, batch, values)
    except BdbQuit:
        raise
    except BaseException as error:  # noqa: BLE001  a model may raise anything; it becomes a typed error
        raise_if_model_left(error, "predict", loaded.logger)
        if count == 1:
            return [model_error(error, "predict", loaded.logger)]
        if is_memory_error(error):
            loaded.memory.halve(count, batch.longest)
        loaded.logger.warning(
            "batch_failed",
            rows=count,
            error_type=kind_name(error),
            out_of_memory=is_memory_error(error),
            **({"reason": cleaned(error).message} if is_failure(error) else {}),
        )
    # Outside of the handler: the exception's frames hold the failed batch's arrays.
    del values
    return _run_parts(loaded, batch)


def _run_parts(loaded: LoadedModel, batch: ModelBatch) -> list[Any]:
    half = len(batch.rows) // 2
    first = [keep_output(loaded, output) for output in _run_in_halves(loaded, batch.part(0, half))]
    return first + _run_in_halves(loaded, batch.part(half, len(batch.rows)))


def _take_values(
    loaded: LoadedModel, rows: Sequence[TakenRow]
) -> tuple[list[Any], dict[int, RequestError]]:
    """What `predict` gets for the rows; prepared again where an earlier run used it up.

    Where this fails for some, by whose places their errors are, the rest stays at hand.
    """
    values: list[Any] = []
    errors: dict[int, RequestError] = {}
    for at, (request, place) in enumerate(rows):
        value = request.values[place]
        request.values[place] = NOT_AT_HAND
        if value is NOT_AT_HAND:
            try:
                value = value_again(loaded, request, place)
            except BdbQuit:
                raise
            except BaseException as error:  # noqa: BLE001  a model may raise anything, here as well
                errors[at] = request_error(error, "preprocess", loaded.logger)
        values.append(value)
    if errors:
        for (request, place), value in zip(rows, values, strict=True):
            request.values[place] = value
    return values, errors


def _run_the_rest(
    loaded: LoadedModel, batch: ModelBatch, errors: Mapping[int, RequestError]
) -> list[Any]:
    rest = [row for at, row in enumerate(batch.rows) if at not in errors]
    results = iter(_run_in_halves(loaded, batch_of(batch.number, rest)) if rest else ())
    return [errors[at] if at in errors else next(results) for at in range(len(batch.rows))]


def keep_output(loaded: LoadedModel, output: Any) -> Any:
    """An output as it is now, for the time after the model runs again; or its `RequestError`."""
    if is_failure(output):
        return output
    try:
        return snapshot(output, loaded.model)
    except BaseException as error:  # noqa: BLE001  classes of a model's may raise anything
        return model_error(error, "predict", loaded.logger)


def give_back(
    rows: Sequence[TakenRow], results: Sequence[Any]
) -> tuple[dict[int, PreparedRequest], dict[int, RowErrors]]:
    """Give each row's result to its request; returns the requests, and errors by their numbers."""
    touched: dict[int, PreparedRequest] = {}
    errors: dict[int, RowErrors] = {}
    for (request, place), result in zip(rows, results, strict=True):
        touched[request.number] = request
        if is_failure(result):
            errors.setdefault(request.number, []).append((place, result))
        request.outputs[place] = result
        request.missing -= 1
    return touched, errors


def keep_outputs(
    rows: Sequence[TakenRow], loaded: LoadedModel, errors: dict[int, RowErrors]
) -> None:
    """Keep outputs that wait for other rows or for a thread beside: the model may reuse them."""
    for request, place in rows:
        before = request.outputs[place]
        output = request.outputs[place] = keep_output(loaded, before)
        if is_failure(output) and output is not before:
            errors.setdefault(request.number, []).append((place, output))


def outputs_of(loaded: LoadedModel, batch: ModelBatch) -> list[Any]:
    """Predict; for batches of our own, all of whose rows must succeed.

    Raises:
        RequestError: of the first row that failed.
    """
    outputs = run_batch(loaded, batch)
    for output in outputs:
        if is_failure(output):
            raise output
    return outputs


def _predict(loaded: LoadedModel, batch: ModelBatch, values: list[Any]) -> list[Any]:
    """Hand the rows over. Nothing that the model gets is used again, or belongs to another row."""
    model = loaded.model
    context = PredictContext(
        lengths=list(batch.lengths),
        parameters=batch.rows[0].request.inputs.parameters(),
        device=loaded.device,
        batch=batch.number,
    )
    rows: Any = values
    if model.stack:
        rows = stack_rows(values, batch.lengths, model.pad_side, model.pad_value)
    outputs = model.predict(rows, context)
    count = len(batch.rows)
    is_sequence = isinstance(outputs, list | tuple) or (
        isinstance(outputs, np.ndarray) and outputs.ndim > 0
    )
    results = list(outputs) if is_sequence else []
    if not is_sequence or len(results) != count:
        given = f"{len(results)} outputs" if is_sequence else kind_name(outputs)
        raise RequestError.of(
            ErrorKind.BAD_OUTPUT,
            f"predict returned {given} for {count} rows; one per row is expected",
        )
    return [cleaned(result) if is_failure(result) else result for result in results]
