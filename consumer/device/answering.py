"""From the outputs of a request's rows to the bytes of its answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...wire.codec import encode_body
from ...wire.errors import ErrorKind, RequestError
from ...wire.names import is_name
from ...wire.tensors import encode_columns
from .faults import merge_row_errors, model_error
from .lanes import Lane, OpenRequest
from .preparing import refuse_unknown

_ONLY_OUTPUT = "output"


def encode_answer(lane: Lane, request: OpenRequest) -> bytes:
    """Postprocess all rows of a request and encode them, in input order, as its caller asked.

    Raises:
        RequestError: `bad_output` and `model_error`, or `bad_request` for an unknown output.
    """
    rows = _postprocess(lane, request.outputs) if lane.postprocesses else request.outputs
    try:
        columns = assemble(lane, rows, request.wanted)
        return encode_body(encode_columns(columns, request.accept), request.accept)
    except (ValueError, TypeError) as error:
        raise _bad_output(f"an output cannot be put on the wire: {error}") from error


def output_bytes(value: Any) -> int:
    """About how much one row's output weighs."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(output_bytes, value.values()))
    return len(value) if isinstance(value, str | bytes | list | tuple) else 8


def _postprocess(lane: Lane, outputs: Sequence[Any]) -> list[Any]:
    rows, errors = [], []
    for at, output in enumerate(outputs):
        try:
            rows.append(lane.model.postprocess(output))
        except Exception as error:  # noqa: BLE001  a model may raise anything; it becomes a typed error
            errors.append((at, model_error(error, "postprocess", lane.logger)))
    if errors:
        raise merge_row_errors(errors)
    return rows


def assemble(lane: Lane, rows: Sequence[Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    """Turn one mapping (or bare value) per row into one column per output, rows in order.

    Raises:
        RequestError: `bad_output` where the rows disagree with one another or with the signature.
    """
    named = [_named(lane, row) for row in rows]
    names = named[0].keys()
    if lane.outputs and names != lane.outputs.keys():
        raise _bad_output(f"outputs are {sorted(names)}; declared are {sorted(lane.outputs)}")
    if not lane.outputs and not all(isinstance(name, str) and is_name(name) for name in names):
        raise _bad_output(f"outputs are {[*names]}; an output needs a name")
    for at, row in enumerate(named):
        if row.keys() != names:
            raise _bad_output(f"rows have different outputs: {sorted(row)}, {sorted(names)}", at)
    if wanted:
        refuse_unknown(wanted, named[0])
    return {name: _column(lane, name, [row[name] for row in named]) for name in wanted or names}


def _named(lane: Lane, row: Any) -> Mapping[Any, Any]:
    if isinstance(row, Mapping):
        return row
    if len(lane.outputs) > 1:
        raise _bad_output(f"one value for a row where outputs {sorted(lane.outputs)} are declared")
    return {next(iter(lane.outputs), _ONLY_OUTPUT): row}


def _column(lane: Lane, name: str, values: list[Any]) -> Any:
    declared = lane.outputs.get(name)
    first = values[0]
    if isinstance(first, str | bytes):
        if declared is not None and declared.datatype != "BYTES":
            raise _bad_output(f"output {name!r} is text; declared is {declared.datatype}")
        for at, value in enumerate(values):
            if not isinstance(value, str | bytes):
                raise _bad_output(f"output {name!r} is text in some rows only", at)
        return values
    dtype = lane.output_dtypes.get(name)
    column = _stack(name, values, dtype)
    if declared is not None and (dtype is None or column.dtype != dtype):
        raise _bad_output(f"output {name!r} is {column.dtype}; declared is {declared.datatype}")
    if column.dtype.kind == "f" and (declared is None or declared.finite):
        _refuse_not_finite(name, column)
    return column


def _stack(name: str, values: list[Any], dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    first = values[0]
    if not isinstance(first, np.ndarray | np.generic):
        if not isinstance(first, bool | int | float):
            kind = type(first).__name__
            raise _bad_output(f"output {name!r} is {kind}, not an array, text or number")
        # A plain number has no width of its own: it takes the declared one.
        return _array(name, values, dtype)
    if len(values) == 1:
        return np.asarray(first)[np.newaxis]
    try:
        return np.stack(values)
    except ValueError as error:
        shapes = sorted({str(list(np.shape(value))) for value in values})
        shown = ", ".join(shapes[:4])
        raise _bad_output(f"output {name!r} has different shapes: {shown}") from error


def _array(name: str, values: list[Any], dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(values, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad_output(f"output {name!r} does not fit its datatype: {error}") from error


def _refuse_not_finite(name: str, column: np.ndarray[Any, Any]) -> None:
    finite = np.isfinite(column)
    if not finite.all():
        at = np.unique(np.nonzero(~finite)[0])
        raise _bad_output(f"output {name!r} holds NaN or infinity", *(int(row) for row in at))


def _bad_output(message: str, *rows: int) -> RequestError:
    return RequestError.of(ErrorKind.BAD_OUTPUT, message, rows=rows)
