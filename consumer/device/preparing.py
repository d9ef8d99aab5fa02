"""From a caller's bytes to rows with exact lengths."""

from bdb import BdbQuit
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...models.model import Prepared, Row
from ...service.clock import Clock
from ...wire.codec import JSON, decode_body
from ...wire.errors import ErrorKind, RequestError
from ...wire.names import shown
from ...wire.tensors import Column, check_columns, count_rows, decode_columns
from ...wire.texts import kind_name, text_of
from ..protocol import Failure, Item
from .faults import (
    failure_of,
    merge_row_errors,
    model_error,
    preprocess_error,
    request_error,
)
from .lanes import Lane, OpenRequest

_NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})
_WHOLE = (int, np.integer)
# Far more than any model takes; sums over all rows of a request still fit 64 bits.
_LENGTH_MAX = 2**31 - 1


def prepare_all(
    lane: Lane | None, items: Sequence[Item], clock: Clock
) -> tuple[list[OpenRequest], list[Failure]]:
    """Preprocess requests one after the other; returns them, and those that failed."""
    if lane is None:
        error = RequestError.of(ErrorKind.UNAVAILABLE, "this version is not loaded")
        return [], [failure_of(item.request, error) for item in items]
    requests: list[OpenRequest] = []
    failures: list[Failure] = []
    before_ms = clock.monotonic_ms()
    for item in items:
        try:
            request = prepare(lane, item)
        except BaseException as error:  # noqa: BLE001  one request is no reason to end the others
            failed = request_error(error, "prepare", lane.logger)
            failures.append(lane.failure_of(item.request, failed))
            before_ms = clock.monotonic_ms()
            continue
        after_ms = clock.monotonic_ms()
        request.preprocess_ms = after_ms - before_ms
        before_ms = after_ms
        requests.append(request)
    return requests, failures


def prepare(lane: Lane, item: Item) -> OpenRequest:
    """Decode, check and preprocess one request.

    Raises:
        RequestError: what is wrong with it, with `rows` where single rows are at fault.
    """
    number, content_type, accept, inputs, truncate, raw_parameters, outputs = item
    limits = lane.record.limits
    parameters = read_parameters(raw_parameters)
    wanted = read_wanted(outputs, lane)
    columns = decode_columns(decode_body(inputs, content_type), lane.record.signature)
    count = count_rows(columns)
    if count > limits.max_rows_per_request:
        raise RequestError.of(
            ErrorKind.TOO_MANY_ROWS,
            f"{count} rows; the model takes {limits.max_rows_per_request} in one request",
        )
    check_columns(columns, lane.record.signature)
    rows = split_rows(columns, count, parameters, truncate or limits.truncate)
    values, lengths, truncated = prepare_rows(lane, rows)
    # By place: names would double the cost of what is done for each request.
    return OpenRequest(
        number,
        lane.number,
        accept,
        wanted,
        parameters,
        values,
        lengths,
        truncated,
        [None] * count,  # outputs
        count,  # missing
    )


def read_parameters(raw: bytes | None) -> Mapping[str, Any]:
    """Read the field `parameters`.

    Raises:
        CallerError: `bad_request` where it is not a JSON object.
    """
    if not raw:
        return _NO_PARAMETERS
    try:
        parameters = decode_body(raw, JSON)
    except RequestError as error:
        text = error.message.replace("inputs", "parameters", 1)
        raise RequestError.of(ErrorKind.BAD_REQUEST, text) from error
    if not isinstance(parameters, dict):
        raise RequestError.of(ErrorKind.BAD_REQUEST, "parameters must be a JSON object")
    return parameters


def read_wanted(outputs: str | None, lane: Lane) -> tuple[str, ...]:
    """Read the field `outputs`, names with commas between them; empty means all.

    Raises:
        CallerError: `bad_request` for a name that the signature does not have.
    """
    if not outputs:
        return ()
    wanted = tuple(name.strip() for name in outputs.split(","))
    if lane.outputs:
        refuse_unknown(wanted, lane.outputs)
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


def split_rows(
    columns: Mapping[str, Column], count: int, parameters: Mapping[str, Any], truncate: str
) -> list[Row]:
    """Cut columns into rows; each array loses its first axis, and stays an array."""
    rows = []
    for at in range(count):
        row = Row(None, parameters, truncate)
        for name, column in columns.items():
            row[name] = column[at] if isinstance(column, list) else column[at, ...]
        rows.append(row)
    return rows


def prepare_rows(lane: Lane, rows: list[Row]) -> tuple[list[Any], list[int], int]:
    """Preprocess rows; returns their values for `predict`, exact lengths, and tokens cut off.

    Raises:
        RequestError: of the first row that failed, naming every row that failed in that way.
    """
    step = _preprocess_row if lane.preprocesses else _measure_row
    values, lengths, errors = [], [], []
    truncated = 0
    for at, row in enumerate(rows):
        try:
            value, length, cut = step(lane, row)
        except RequestError as error:
            errors.append((at, error))
            continue
        except BdbQuit as error:  # of the whole request: who quits does not want to stop again
            raise model_error(error, "preprocess", lane.logger) from error
        values.append(value)
        lengths.append(length)
        truncated += cut
    if errors:
        raise merge_row_errors(errors)
    return values, lengths, truncated


def _measure_row(lane: Lane, row: Row) -> tuple[Any, int, int]:
    """A row of a model without `preprocess`: handed on as it is."""
    ratio = lane.record.bytes_per_token
    if ratio <= 0:
        return row, 1, 0
    text = row.get("text")
    length = int(len(text) // ratio) + 1 if isinstance(text, str) else 1
    _refuse_long(lane, length)
    return row, length, 0


def _preprocess_row(lane: Lane, row: Row) -> tuple[Any, int, int]:
    try:
        value, length, truncated = _read_prepared(lane.model.preprocess(row), row)
    except BdbQuit:
        raise
    except BaseException as error:  # a model may raise anything; all of it becomes a typed error
        raise preprocess_error(error, lane.logger, lane.fault_log) from error
    _refuse_long(lane, length)
    return value, length, truncated


def _read_prepared(result: Any, row: Row) -> tuple[Any, int, int]:
    if isinstance(result, Prepared):
        truncated = _whole("truncated_tokens", result.truncated_tokens, 0)
        return result.value, _whole("length", result.length, 1), truncated
    if isinstance(result, _WHOLE):
        return row, _whole("length", result, 1), 0
    if isinstance(result, Mapping):
        return result, _whole("length", _first_axis(result.values()), 1), 0
    if hasattr(result, "shape"):
        return result, _whole("length", _first_axis((result,)), 1), 0
    raise RequestError.of(
        ErrorKind.BAD_OUTPUT,
        f"preprocess gave {kind_name(result)}; arrays, Prepared or a length are expected",
    )


def _first_axis(values: Iterable[Any]) -> Any:
    shapes = (value.shape for value in values if hasattr(value, "shape"))
    return next((shape[0] for shape in shapes if len(shape) > 0), 1)


def _whole(name: str, value: Any, lowest: int) -> int:
    if not isinstance(value, bool) and isinstance(value, _WHOLE):
        number = int(value)  # plain, whatever a derived class makes of comparisons
        if lowest <= number <= _LENGTH_MAX:
            return number
    raise RequestError.of(
        ErrorKind.BAD_OUTPUT,
        f"preprocess gave {name} {shown(text_of(value))}; "
        f"it must be a whole number from {lowest} to {_LENGTH_MAX}",
    )


def _refuse_long(lane: Lane, length: int) -> None:
    longest = lane.record.limits.max_length
    if 0 < longest < length:
        raise RequestError.of(ErrorKind.TOO_LONG, f"{length} tokens; the model takes {longest}")
