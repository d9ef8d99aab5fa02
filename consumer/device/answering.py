"""From the outputs of a request's rows to the bytes of its answer."""

import sys
from bdb import BdbQuit
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...models.model import Row
from ...wire.codec import MSGPACK, encode_body
from ...wire.errors import ErrorKind, RequestError
from ...wire.limits import OUTPUTS_BYTES_MAX
from ...wire.names import is_name
from ...wire.tensors import encode_columns, encode_rows
from ...wire.texts import kind_name
from .faults import merge_row_errors, model_error, output_error, raise_if_model_left
from .loaded_models import LoadedModel, PreparedRequest
from .preparing import refuse_unknown
from .snapshot import snapshot

_ONLY_OUTPUT = "output"
# Named because writing `str | bytes` makes a new object each time.
_TEXT = (str, bytes)
_ARRAY = (np.ndarray, np.generic)
_SIZED = (str, bytes, list, tuple)
_NUMBER = (bool, int, float)


def encode_answer(loaded: LoadedModel, request: PreparedRequest) -> bytes:
    """Postprocess all rows of a request and encode them, in input order, as its caller asked.

    Raises:
        RequestError: `bad_output` and `model_error`, or `bad_request` for an unknown output.
    """
    rows = _postprocess(loaded, request.outputs) if loaded.postprocesses else request.outputs
    try:
        columns = assemble(loaded, rows, request.wanted)
        answer = encode_body(encode_columns(columns, request.accept), request.accept)
    except BaseException as error:
        raise output_error(error, loaded.logger) from error
    if len(answer) > OUTPUTS_BYTES_MAX:
        raise _bad_output(f"outputs of {len(answer)} bytes; {OUTPUTS_BYTES_MAX} are allowed")
    return answer


def encode_together(loaded: LoadedModel, requests: Sequence[PreparedRequest]) -> list[bytes] | None:
    """Encode the answers of requests of one row each, in one go; None where they must go alone.

    To check and encode a column takes about as long for a hundred rows as for one. That no request
    may change what another gets, or fail it, limits this to outputs of one type and shape.
    """
    wanted = requests[0].wanted
    rows = [
        request.outputs[0]
        for request in requests
        if len(request.outputs) == 1 and request.accept == MSGPACK and request.wanted == wanted
    ]
    if len(rows) < len(requests):
        return None
    try:
        if not _are_alike(rows):
            return None
        columns = assemble(loaded, rows, wanted)
        tensors = [encode_rows(name, column) for name, column in columns.items()]
    except BaseException as error:  # noqa: BLE001  alone, each fails for its own sake
        raise_if_model_left(error, "encode", loaded.logger)
        return None
    return [encode_body(parts, MSGPACK) for parts in zip(*tensors, strict=True)]


def _are_alike(rows: Sequence[Any]) -> bool:
    """Whether all rows hold arrays of the same types and shapes under the same names."""
    first = rows[0]
    if type(first) is not dict or not first:
        return False
    for name, value in first.items():
        if not isinstance(value, np.ndarray) or value.size == 0:
            return False
        dtype, shape = value.dtype, value.shape
        for row in rows:
            other = row.get(name) if type(row) is dict else None
            if type(other) is not np.ndarray or other.dtype != dtype or other.shape != shape:
                return False
    return True


def output_bytes(value: Any) -> int:
    """About how much one row's output weighs; runs no code of the output's own."""
    parts = value.values() if type(value) is dict or type(value) is Row else (value,)
    return sum(map(_part_bytes, parts))


def _part_bytes(value: Any) -> int:
    kind = type(value)
    if kind is np.ndarray:
        return int(value.nbytes)
    return len(value) if kind in _SIZED else 8


def _postprocess(loaded: LoadedModel, outputs: Sequence[Any]) -> list[Any]:
    rows, errors = [], []
    for at, output in enumerate(outputs):
        try:
            with loaded.postprocessing:
                rows.append(snapshot(loaded.model.postprocess(output), loaded.model))
        except BdbQuit as error:  # of the whole request: who quits does not want to stop again
            raise model_error(error, "postprocess", loaded.logger) from error
        except BaseException as error:  # noqa: BLE001  a model may raise anything; it becomes a typed error
            errors.append((at, model_error(error, "postprocess", loaded.logger)))
    if errors:
        raise merge_row_errors(errors)
    return rows


def assemble(loaded: LoadedModel, rows: Sequence[Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    """Turn one mapping (or bare value) per row into one column per output, rows in order.

    Raises:
        RequestError: `bad_output` where the rows disagree with one another or with the signature.
    """
    named = [row if isinstance(row, Mapping) else _named(loaded, row) for row in rows]
    names = named[0].keys()
    if loaded.outputs:
        if names != loaded.outputs.keys():
            raise _bad_output(f"outputs are {sorted(names)}; declared are {sorted(loaded.outputs)}")
    else:
        for name in names:
            if not isinstance(name, str) or not is_name(name):
                raise _bad_output(f"outputs are {[*names]}; an output needs a name")
    for at, row in enumerate(named):
        if row.keys() != names:
            raise _bad_output(f"rows have different outputs: {sorted(row)}, {sorted(names)}", at)
    if wanted:
        refuse_unknown(wanted, named[0])
    columns = {}
    for name in wanted or names:
        columns[name] = _column(loaded, name, [row[name] for row in named])
    return columns


def _named(loaded: LoadedModel, row: Any) -> Mapping[Any, Any]:
    if len(loaded.outputs) > 1:
        raise _bad_output(
            f"one value for a row where outputs {sorted(loaded.outputs)} are declared"
        )
    return {next(iter(loaded.outputs), _ONLY_OUTPUT): row}


def _column(loaded: LoadedModel, name: str, values: list[Any]) -> Any:
    declared = loaded.outputs.get(name)
    if isinstance(values[0], _TEXT):
        if declared is not None and declared.datatype != "BYTES":
            raise _bad_output(f"output {name!r} is text; declared is {declared.datatype}")
        for at, value in enumerate(values):
            if not isinstance(value, _TEXT):
                raise _bad_output(f"output {name!r} is text in some rows only", at)
        return values
    dtype = loaded.output_dtypes.get(name)
    column = _stack(name, values, dtype)
    if declared is not None and (dtype is None or column.dtype != dtype):
        raise _bad_output(f"output {name!r} is {column.dtype}; declared is {declared.datatype}")
    if column.dtype.kind == "f" and (declared is None or declared.finite):
        _refuse_not_finite(name, column)
    return column


def _stack(name: str, values: list[Any], dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    # Asked where a model has brought it in: to import it takes longer than a batch.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    if any(isinstance(value, masked) for value in values):
        raise _bad_output(f"output {name!r} is a masked array; fill it, because masks are not sent")
    if all(isinstance(value, _NUMBER) and not isinstance(value, _ARRAY) for value in values):
        # A plain number has no width of its own: it takes the declared one.
        return _plain_numbers(name, values, dtype)
    arrays = [_numbers(name, value, dtype) for value in values]
    if len(arrays) == 1:
        return np.asarray(arrays[0])[np.newaxis]
    try:
        column = np.stack(arrays)
    except ValueError as error:
        shapes = sorted({str(list(np.shape(value))) for value in arrays})
        shown = ", ".join(shapes[:4])
        raise _bad_output(f"output {name!r} has different shapes: {shown}") from error
    _refuse_changed(name, arrays, column)
    return column


def _refuse_changed(name: str, arrays: Sequence[Any], column: np.ndarray[Any, Any]) -> None:
    """A column has one datatype; a row whose values it would change must not be put in."""
    for at, array in enumerate(arrays):
        before = array.dtype
        if before == column.dtype:
            continue
        with np.errstate(invalid="ignore"):
            back = column[at].astype(before)
        if before.kind != "b" and np.array_equal(back, array, equal_nan=before.kind in "fc"):
            continue
        found = ", ".join(sorted({str(array.dtype) for array in arrays}))
        raise _bad_output(f"output {name!r} has different datatypes: {found}", at)


def _plain_numbers(
    name: str, values: list[Any], dtype: np.dtype[Any] | None
) -> np.ndarray[Any, Any]:
    truths = sum(isinstance(value, bool) for value in values)
    if 0 < truths < len(values):
        raise _bad_output(f"output {name!r} is a boolean in some rows only")
    column = np.asarray(_numbers(name, values, dtype))
    if dtype is None and column.dtype.kind == "f":
        for at, value in enumerate(values):
            if isinstance(value, int) and value != float(value):
                raise _bad_output(
                    f"output {name!r} is a whole number that FP64 cannot represent", at
                )
    return column


def _numbers(
    name: str, value: Any, dtype: np.dtype[Any] | None
) -> np.ndarray[Any, Any] | np.generic:
    """A row's numbers as an array; those that are no array have the width that is declared."""
    if isinstance(value, _ARRAY):
        return value
    if not isinstance(value, list | tuple | bool | int | float):
        kind = kind_name(value)
        raise _bad_output(
            f"output {name!r} is {kind}, not an array, a list of numbers, text or a number"
        )
    array = _array(name, value, None)
    if array.dtype.kind not in "biuf":
        raise _bad_output(f"output {name!r} is a list of something other than numbers")
    whole_for_float = dtype is not None and dtype.kind == "f" and array.dtype.kind in "iu"
    if dtype is None or not (whole_for_float or array.dtype.kind == dtype.kind):
        return array
    return _array(name, value, dtype)


def _array(name: str, values: Any, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(values, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        # Not in the error's own words, which may quote what came from a caller.
        reason = type(error).__name__
        raise _bad_output(f"output {name!r} does not fit its datatype: {reason}") from error


def _refuse_not_finite(name: str, column: np.ndarray[Any, Any]) -> None:
    finite = np.isfinite(column)
    # A search in bytes costs a third of `finite.all()`, most of which is numpy's setting out.
    if b"\0" in finite.tobytes():
        at = np.unique(np.nonzero(~finite)[0])
        raise _bad_output(f"output {name!r} holds NaN or infinity", *(int(row) for row in at))


def _bad_output(message: str, *rows: int) -> RequestError:
    return RequestError.of(ErrorKind.BAD_OUTPUT, message, rows=rows)
