"""Inputs as typed or read from a file, and answers as printed."""

from typing import IO, Any

import click
import numpy as np
import orjson

from ....producer.result import Result
from ....wire.codec import JSON, decode_body
from ....wire.errors import ErrorKind, RequestError
from ....wire.limits import INPUTS_BYTES_MAX
from ....wire.reply import Reply
from ....wire.tensors import Column, datatype_of, decode_columns, encode_columns

# A number takes several times as many characters as bytes; the client holds the request to its own
# bound.
_FILE_BYTES_MAX = 8 * INPUTS_BYTES_MAX
_NUMBERS_SHOWN = 6
_ROWS_SHOWN = 20
_CHARACTERS_SHOWN = 2000


def read_inputs(texts: tuple[str, ...], file: IO[bytes] | None) -> Any:
    """Inputs for a client: texts, or what the JSON in `file` says.

    Raises:
        UsageError: neither or both.
        CallerError: the file is too large, is not JSON, or holds tensors that are ill-formed.
    """
    if bool(texts) == (file is not None):
        raise click.UsageError("give either texts or --input FILE")
    if file is None:
        return list(texts)
    raw = file.read(_FILE_BYTES_MAX + 1)
    if len(raw) > _FILE_BYTES_MAX:
        raise RequestError.of(
            ErrorKind.TOO_LARGE, f"the file is larger than {_FILE_BYTES_MAX} bytes"
        )
    body = decode_body(raw, JSON)
    is_tensors = isinstance(body, list) and any(isinstance(part, dict) for part in body)
    return _inputs_of(body) if is_tensors else body


def _inputs_of(tensors: list[Any]) -> dict[str, Any]:
    """Tensors of the contract as a client takes them; a list without a datatype stays a list."""
    columns: dict[str, Any] = dict(decode_columns(tensors))
    for tensor in tensors:
        column = columns[tensor["name"]]
        if "datatype" not in tensor and isinstance(column, np.ndarray):
            columns[tensor["name"]] = column.tolist()
    return columns


def result_json(result: Result) -> dict[str, Any]:
    """A result as a reply in JSON."""
    parts = {
        "id": result.id,
        "tenant": result.tenant,
        "status": "ok",
        "model": result.model,
        "version": result.version,
        "meta": result.meta,
        "trace_id": result.trace_id,
        "warnings": list(result.warnings),
        "usage": dict(result.usage),
        "receipt": dict(result.receipt),
        "outputs": encode_columns(result.outputs, JSON),
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}


def reply_json(reply: Reply) -> dict[str, Any]:
    """A reply as JSON; outputs with raw bytes become lists."""
    outputs = reply.outputs
    parts = {
        "id": reply.id,
        "tenant": reply.tenant,
        "status": reply.status,
        "model": reply.model,
        "version": reply.version,
        "meta": reply.meta,
        "trace_id": reply.trace_id,
        "warnings": list(reply.warnings),
        "usage": dict(reply.usage),
        "receipt": dict(reply.receipt),
        "error": reply.error,
        "outputs_at": reply.outputs_at,
        "outputs": None if outputs is None else encode_columns(decode_columns(outputs), JSON),
    }
    return {name: value for name, value in parts.items() if value not in (None, [], {})}


def describe_outputs(outputs: dict[str, Column]) -> list[str]:
    """Outputs for people: name, datatype, shape, and the start of each row."""
    return [line for name, column in outputs.items() for line in _describe(name, column)]


def _describe(name: str, column: Column) -> list[str]:
    if isinstance(column, list):
        head, rows = f"{name}  {len(column)} texts", [_shown_text(item) for item in column]
    else:
        head = f"{name}  {datatype_of(column.dtype)} {list(column.shape)}"
        rows = [_shown_row(row) for row in column[:_ROWS_SHOWN]]
    hidden = len(column) - _ROWS_SHOWN
    tail = [f"  … and {hidden} more rows"] if hidden > 0 else []
    return [head, *(f"  {row}" for row in rows[:_ROWS_SHOWN]), *tail]


def _shown_text(item: str | bytes) -> str:
    head = item[:_CHARACTERS_SHOWN]
    text = repr(head) if isinstance(head, bytes) else orjson.dumps(head).decode()
    unit = "bytes" if isinstance(item, bytes) else "characters"
    return text + (f" …  ({len(item)} {unit})" if len(item) > len(head) else "")


def _shown_row(row: Any) -> str:
    flat = np.asarray(row).reshape(-1)
    numbers = " ".join(_shown_number(number) for number in flat[:_NUMBERS_SHOWN].tolist())
    return numbers + (f" …  ({flat.size} numbers)" if flat.size > _NUMBERS_SHOWN else "")


def _shown_number(number: Any) -> str:
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def describe_service(result: Result) -> str:
    """One line about how a request was served."""
    receipt = result.receipt
    return (
        f"{result.model}/{result.version}  request {result.id}  "
        f"waited {receipt.get('queue_ms', 0):g} ms, ran {receipt.get('predict_ms', 0):g} ms "
        f"in a batch of {receipt.get('rows', 0)}"
    )
