"""From a caller's bytes to rows with exact lengths."""

from bdb import BdbQuit
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...models.model import Prepared, Row
from ...models.stacking import arrays_of, check_pad_value, kind_of_row
from ...service.clock import Clock
from ...wire.codec import JSON, MSGPACK, decode_body
from ...wire.errors import ErrorKind, RequestError
from ...wire.names import shown
from ...wire.tensors import check_columns, count_rows, decode_columns
from ...wire.texts import kind_name, text_of
from ..link.protocol import Failure, Item
from .faults import failure_of, merge_row_errors, model_error, preprocess_error, request_error
from .inputs import Inputs, RequestInputs
from .loaded_models import NOT_AT_HAND, NOT_TAKEN, LoadedModel, PreparedRequest
from .snapshot import snapshot

_WHOLE = (int, np.integer)
# Far more than any model takes; sums over all rows of a request still fit 64 bits.
_LENGTH_MAX = 2**31 - 1


def prepare_all(
    loaded: LoadedModel | None, items: Sequence[Item], clock: Clock
) -> tuple[list[PreparedRequest], list[Failure]]:
    """Preprocess requests one after the other; returns them, and those that failed."""
    if loaded is None:
        error = RequestError.of(ErrorKind.UNAVAILABLE, "this version is not loaded")
        return [], [failure_of(item.request, error) for item in items]
    requests: list[PreparedRequest] = []
    failures: list[Failure] = []
    before_ms = clock.monotonic_ms()
    for item in items:
        try:
            request = prepare(loaded, item)
        except BaseException as error:  # noqa: BLE001  one request is no reason to end the others
            failed = request_error(error, "prepare", loaded.logger)
            failures.append(loaded.failure_of(item.request, failed))
            before_ms = clock.monotonic_ms()
            continue
        after_ms = clock.monotonic_ms()
        request.preprocess_ms = after_ms - before_ms
        before_ms = after_ms
        requests.append(request)
    return requests, failures


def prepare(loaded: LoadedModel, item: Item) -> PreparedRequest:
    """Decode, check and preprocess one request.

    Raises:
        RequestError: what is wrong with it, with `rows` where single rows are at fault.
    """
    number, content_type, accept, inputs, truncate, raw_parameters, outputs = item
    limits = loaded.record.limits
    check_parameters(raw_parameters)
    wanted = read_wanted(outputs, loaded)
    columns = decode_columns(decode_body(inputs, content_type), loaded.record.signature)
    count = count_rows(columns)
    if count > limits.max_rows_per_request:
        raise RequestError.of(
            ErrorKind.TOO_MANY_ROWS,
            f"{count} rows; the model takes {limits.max_rows_per_request} in one request",
        )
    check_columns(columns, loaded.record.signature)
    given = RequestInputs(columns, count, raw_parameters, truncate or limits.truncate)
    return prepare_inputs(loaded, given, number=number, accept=accept, wanted=wanted)


def prepare_inputs(
    loaded: LoadedModel,
    inputs: Inputs,
    *,
    number: int = 0,
    accept: str = MSGPACK,
    wanted: tuple[str, ...] = (),
) -> PreparedRequest:
    """Preprocess all rows of a request.

    Raises:
        RequestError: of the first row that failed, naming every row that failed in that way.
    """
    count = inputs.count
    if loaded.is_plain:
        prepared = [NOT_AT_HAND] * count, [1] * count, [inputs.kind] * count, 0
    else:
        prepared = _prepare_rows(loaded, inputs)
    # By place: names would double the cost of what is done for each request.
    outputs = [NOT_TAKEN] * count
    return PreparedRequest(number, loaded.number, accept, wanted, inputs, *prepared, outputs, count)


def check_parameters(raw: bytes | None) -> None:
    """Hold the field `parameters` against what it may be.

    Raises:
        CallerError: `bad_request` where it is not a JSON object.
    """
    if not raw:
        return
    try:
        parameters = decode_body(raw, JSON)
    except RequestError as error:
        text = error.message.replace("inputs", "parameters", 1)
        raise RequestError.of(ErrorKind.BAD_REQUEST, text) from error
    if not isinstance(parameters, dict):
        raise RequestError.of(ErrorKind.BAD_REQUEST, "parameters must be a JSON object")


def read_wanted(outputs: str | None, loaded: LoadedModel) -> tuple[str, ...]:
    """Read the field `outputs`, names with commas between them; empty means all.

    Raises:
        CallerError: `bad_request` for a name that the signature does not have.
    """
    if not outputs:
        return ()
    wanted = tuple(name.strip() for name in outputs.split(","))
    if loaded.outputs:
        refuse_unknown(wanted, loaded.outputs)
    return wanted


def refuse_unknown(wanted: tuple[str, ...], known: Mapping[str, Any]) -> None:
    """Hold the wanted outputs against those that there are.

    Raises:
        CallerError: `bad_request` naming both.
    """
    for name in wanted:
        if name not in known:
            there_are = ", ".join(sorted(known))
            raise RequestError.of(
                ErrorKind.BAD_REQUEST, f"no output is named {shown(name)}; there are: {there_are}"
            )


def _prepare_rows(
    loaded: LoadedModel, inputs: Inputs
) -> tuple[list[Any], list[int], list[int], int]:
    """Values, lengths and kinds of all rows, and tokens cut off."""
    values, lengths, kinds, errors = [], [], [], []
    truncated = 0
    kind_of_inputs = inputs.kind
    for at in range(inputs.count):
        try:
            value, length, kind, cut = _prepare_row(loaded, inputs, at, kind_of_inputs)
        except RequestError as error:
            errors.append((at, error))
            continue
        except BdbQuit as error:  # of the whole request: who quits does not want to stop again
            raise model_error(error, "preprocess", loaded.logger) from error
        values.append(value)
        lengths.append(length)
        kinds.append(kind)
        truncated += cut
    if errors:
        raise merge_row_errors(errors)
    return values, lengths, kinds, truncated


def value_again(loaded: LoadedModel, request: PreparedRequest, place: int) -> Any:
    """Make the value of a row that has none at hand.

    Raises:
        RequestError: `preprocess` fails on the row now, or makes something else of it.
    """
    inputs = request.inputs
    if not loaded.preprocesses and not loaded.model.stack:
        return inputs.row(place)
    value, length, kind, _ = _prepare_row(loaded, inputs, place, inputs.kind)
    if (length, kind) != (request.lengths[place], request.kinds[place]):
        raise RequestError.of(
            ErrorKind.BAD_OUTPUT,
            f"preprocess returned a row of length {request.lengths[place]}, then one of length "
            f"{length} or with other arrays when it ran again",
        )
    return value


def _prepare_row(
    loaded: LoadedModel, inputs: Inputs, at: int, kind: int
) -> tuple[Any, int, int, int]:
    """A row's value, length and kind, and tokens cut off.

    Without `preprocess` a value is made only when it is to run, or stacked from where it lies.
    """
    if loaded.preprocesses:
        value, length, truncated = _preprocess_row(loaded, inputs.row(at))
    else:
        value, length, truncated = NOT_AT_HAND, _measure_row(loaded, inputs, at), 0
    if not loaded.model.stack:
        return value, length, kind, truncated
    arrays = _arrays_of(loaded, inputs.view(at) if value is NOT_AT_HAND else value, length)
    return arrays, length, kind_of_row(arrays, length), truncated


def _measure_row(loaded: LoadedModel, inputs: Inputs, at: int) -> int:
    """The length of a row of a model without `preprocess`."""
    ratio = loaded.record.bytes_per_token
    if ratio <= 0:
        return 1
    text = inputs.view(at).get("text")
    length = int(len(text) // ratio) + 1 if isinstance(text, str) else 1
    _refuse_long(loaded, length)
    return length


def _arrays_of(loaded: LoadedModel, value: Any, length: int) -> dict[str, np.ndarray[Any, Any]]:
    """What is stacked of a row, which copies it."""
    try:
        arrays = arrays_of(value)
        check_pad_value(arrays, length, loaded.model.pad_value)
    except ValueError as error:
        kind = ErrorKind.BAD_OUTPUT if loaded.preprocesses else ErrorKind.BAD_INPUTS
        raise RequestError.of(kind, f"this row cannot be stacked: {error}") from error
    return arrays


def _preprocess_row(loaded: LoadedModel, row: Row) -> tuple[Any, int, int]:
    try:
        with loaded.preprocessing:
            result = loaded.model.preprocess(row)
            value, length, truncated = _read_prepared(result, row, fixed=loaded.is_fixed)
            value = snapshot(value, loaded.model)
    except BdbQuit:
        raise
    except BaseException as error:  # a model may raise anything; all of it becomes a typed error
        raise preprocess_error(error, loaded.logger, loaded.fault_log) from error
    _refuse_long(loaded, length)
    return value, length, truncated


def _read_prepared(result: Any, row: Row, *, fixed: bool) -> tuple[Any, int, int]:
    if isinstance(result, Prepared):
        truncated = _whole("truncated_tokens", result.truncated_tokens, 0)
        return result.value, _whole("length", result.length, 1), truncated
    if isinstance(result, _WHOLE):
        return row, _whole("length", result, 1), 0
    if isinstance(result, Mapping) or hasattr(result, "shape"):
        arrays = result.values() if isinstance(result, Mapping) else (result,)
        return result, 1 if fixed else _whole("length", _first_axis(arrays), 1), 0
    raise RequestError.of(
        ErrorKind.BAD_OUTPUT,
        f"preprocess returned {kind_name(result)}; arrays, Prepared or a length are expected",
    )


def _first_axis(values: Iterable[Any]) -> Any:
    shapes = (value.shape for value in values if hasattr(value, "shape"))
    return next((shape[0] for shape in shapes if len(shape) > 0), 1)


def _whole(name: str, value: Any, lowest: int) -> int:
    if not isinstance(value, bool) and isinstance(value, _WHOLE):
        number = int(value)  # plain, in case a derived class overrides comparisons
        if lowest <= number <= _LENGTH_MAX:
            return number
    raise RequestError.of(
        ErrorKind.BAD_OUTPUT,
        f"preprocess returned {name} {shown(text_of(value))}; "
        f"it must be a whole number from {lowest} to {_LENGTH_MAX}",
    )


def _refuse_long(loaded: LoadedModel, length: int) -> None:
    longest = loaded.record.limits.max_length
    if 0 < longest < length:
        raise RequestError.of(ErrorKind.TOO_LONG, f"{length} tokens; the model takes {longest}")
