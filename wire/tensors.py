"""Tensors on the wire, in the Open Inference Protocol's names, and numpy arrays in memory.

`inputs` is either `{"text": ["…", …]}` or a list of `{"name", "datatype", "shape", "data"}`.
`data` is a flat or nested list, or raw little-endian bytes: a bin in msgpack, `{"b64": "…"}` in
JSON. The first axis of every tensor counts rows.

Source: Open Inference Protocol, "Tensor Data" and "Tensor Data Types".
"""

import base64
import binascii
from collections.abc import Mapping, Sized
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .codec import MSGPACK
from .errors import ErrorKind, RequestError
from .limits import ELEMENTS_MAX, TENSORS_MAX
from .names import is_name, shown
from .signature import Signature, TensorSpec

Array = npt.NDArray[Any]
Column = Array | list[str] | list[bytes]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
BYTES = "BYTES"
_PARTS = frozenset(("name", "shape", "data"))
_NAME_OF_KIND = {(dtype.kind, dtype.itemsize): name for name, dtype in DATATYPES.items()}


def _bad(message: str) -> RequestError:
    return RequestError.of(ErrorKind.BAD_INPUTS, message)


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a numpy type.

    Raises:
        ValueError: the protocol has none (complex, object, dates).
    """
    name = _NAME_OF_KIND.get((dtype.kind, dtype.itemsize))
    if name is None:
        raise ValueError(f"arrays of {dtype} have no datatype on the wire")
    return name


def decode_columns(body: Any, signature: Signature | None = None) -> dict[str, Column]:
    """Read decoded `inputs` (or `outputs`) into named columns; strings stay lists.

    A tensor that names no datatype gets that of `signature`, or the widest of its elements' kind.

    Raises:
        CallerError: `bad_inputs`, naming the tensor and what is wrong with it.
    """
    if isinstance(body, dict):
        return _decode_text(body)
    if not isinstance(body, list) or not body:
        raise _bad('inputs must be {"text": [...]} or a list of tensors')
    if len(body) > TENSORS_MAX:
        raise _bad(f"inputs hold {len(body)} tensors; {TENSORS_MAX} are allowed")
    columns: dict[str, Column] = {}
    for tensor in body:
        name, column = _decode_tensor(tensor, signature)
        if name in columns:
            raise _bad(f"tensor {name!r} is given twice")
        columns[name] = column
    return columns


def _decode_text(body: Mapping[Any, Any]) -> dict[str, Column]:
    if set(body) != {"text"}:
        raise _bad('inputs must be {"text": [...]} or a list of tensors')
    texts = body["text"]
    if not isinstance(texts, list) or not texts:
        raise _bad('"text" must be a list of at least one string')
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise RequestError.of(
                ErrorKind.BAD_INPUTS, f'"text" holds {_in_words(text)}', rows=(at,)
            )
    return {"text": texts}


def _decode_tensor(tensor: Any, signature: Signature | None) -> tuple[str, Column]:
    if not isinstance(tensor, dict):
        raise _bad("a tensor must be a map with name, datatype, shape and data")
    if not tensor.keys() >= _PARTS:
        raise _bad(f"a tensor lacks {', '.join(sorted(_PARTS - tensor.keys()))}")
    name, data = check_tensor_name(tensor["name"]), tensor["data"]
    declared = _declared_datatype(name, signature)
    datatype = tensor.get("datatype") or declared or _datatype_of_list(name, data)
    shape = _check_shape(name, tensor["shape"])
    if datatype == BYTES:
        return name, _decode_strings(name, shape, data)
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None and datatype != "BF16":
        raise _bad(f"tensor {name!r}: unknown datatype {shown(str(datatype))}")
    if isinstance(data, dict):
        data = _from_base64(name, data)
    if dtype is None:
        return name, _decode_bf16(name, shape, data)
    if isinstance(data, bytes):
        column = _from_bytes(name, dtype, shape, data)
    else:
        column = _from_list(name, dtype, shape, data)
    # Who has no bfloat16 sends FP32: the model sees the same numbers either way.
    return name, _to_bf16(name, column) if (declared, datatype) == ("BF16", "FP32") else column


def _declared_datatype(name: str, signature: Signature | None) -> str | None:
    for spec in () if signature is None else signature.inputs:
        if spec.name == name:
            return spec.datatype
    return None


def _datatype_of_list(name: str, data: Any) -> str:
    """The datatype of a tensor that names none, and whose name no signature has."""
    if not isinstance(data, list):
        raise _bad(f"tensor {name!r} has no datatype; only a list can do without")
    kinds: set[type] = set()
    rest = [data]
    while rest:
        for item in rest.pop():
            if type(item) is list:
                rest.append(item)
            else:
                kinds.add(type(item))
    if kinds <= {bool}:
        return "BOOL"
    if kinds <= {int}:
        return "INT64"
    return "FP64" if kinds <= {int, float} else BYTES


def _check_shape(name: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= 8:
        raise _bad(f"tensor {name!r}: shape must be 1 to 8 whole numbers")
    for size in shape:
        if type(size) is not int or size < 0:
            raise _bad(f"tensor {name!r}: shape must be 1 to 8 whole numbers")
    if max(shape) > ELEMENTS_MAX or prod(shape) > ELEMENTS_MAX:
        raise RequestError.of(
            ErrorKind.TOO_LARGE, f"tensor {name!r} has more than {ELEMENTS_MAX} elements"
        )
    if shape[0] == 0:
        raise _bad(f"tensor {name!r} has no rows")
    return tuple(shape)


def _from_base64(name: str, data: dict[str, Any]) -> bytes:
    if set(data) != {"b64"} or not isinstance(data["b64"], str):
        raise _bad(f'tensor {name!r}: data must be a list or {{"b64": "..."}}')
    try:
        return base64.b64decode(data["b64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad(f"tensor {name!r}: data is not base64") from error


def _from_bytes(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], data: bytes) -> Array:
    if len(data) != prod(shape) * dtype.itemsize:
        raise _bad(
            f"tensor {name!r}: {len(data)} bytes of data for shape {list(shape)} "
            f"of {dtype.itemsize} bytes each"
        )
    if dtype.kind == "b" and data.translate(None, b"\0\1"):
        raise _bad(f"tensor {name!r}: a byte of BOOL is 0 or 1")
    return np.ndarray(shape, dtype, data)


def _from_list(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], data: Any) -> Array:
    if not isinstance(data, list):
        raise _bad(f"tensor {name!r}: data must be a list or bytes")
    flat = _flatten(data, shape)
    if flat is None:
        raise _bad(f"tensor {name!r}: data is ragged or not of shape {list(shape)}")
    strangers = set(map(type, flat)) - _ELEMENTS_OF_KIND[dtype.kind]
    if strangers:
        kinds = ", ".join(sorted({_WORDS.get(kind, "something else") for kind in strangers}))
        raise _bad(f"tensor {name!r}: data holds {kinds}, not {datatype_of(dtype)}")
    column = _narrow(name, flat, dtype).reshape(shape)
    if dtype.kind == "f":
        _refuse_rows(name, ~np.isfinite(column), "holds NaN or infinity in a list; send bytes")
    return column


# The words of the contract, which are of no language.
_WORDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a whole number",
    float: "a fraction",
    str: "a string",
    bytes: "bytes",
    list: "a list",
    dict: "an object",
}


def _in_words(value: Any) -> str:
    return _WORDS.get(type(value), "something else")


def _flatten(data: list[Any], shape: tuple[int, ...]) -> list[Any] | None:
    """The elements of a flat or fully nested list in row-major order; None where they don't fit."""
    if len(shape) > 1 and any(isinstance(item, list) for item in data):
        for size in shape[1:]:
            if not all(isinstance(item, list) and len(item) == size for item in data):
                return None
            data = list(chain.from_iterable(data))
    return data if len(data) == prod(shape) else None


_ELEMENTS_OF_KIND: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}}


def _narrow(name: str, flat: list[Any], dtype: np.dtype[Any]) -> Array:
    """Convert Python numbers to the claimed type, refusing what would not survive."""
    try:
        with np.errstate(over="raise"):
            return np.array(flat, dtype)
    except (OverflowError, FloatingPointError) as error:
        raise _bad(f"tensor {name!r}: a value does not fit {datatype_of(dtype)}") from error


def _decode_bf16(name: str, shape: tuple[int, ...], data: Any) -> Array:
    """bfloat16 has no numpy type; its bits are the upper half of a float32."""
    if isinstance(data, list):
        return _to_bf16(name, _from_list(name, DATATYPES["FP32"], shape, data))
    if not isinstance(data, bytes):
        raise _bad(f"tensor {name!r}: data must be a list or bytes")
    upper = _from_bytes(name, DATATYPES["UINT16"], shape, data)
    return (upper.astype(np.uint32) << 16).view(np.float32)


def _to_bf16(name: str, column: Array) -> Array:
    """Round FP32 to the nearest bfloat16, to the even one of two; NaN and infinity stay."""
    bits = column.view(np.uint32)
    rounded = np.where(np.isnan(column), bits | 0x0040_0000, bits + (bits >> 16 & 1) + 0x7FFF)
    found: Array = (rounded & 0xFFFF_0000).astype(np.uint32).view(np.float32)
    if not np.array_equal(np.isinf(column), np.isinf(found)):
        raise _bad(f"tensor {name!r}: a value does not fit BF16")
    return found


def _decode_strings(name: str, shape: tuple[int, ...], data: Any) -> list[str] | list[bytes]:
    if len(shape) != 1:
        raise _bad(f"tensor {name!r}: BYTES must have one axis")
    if not isinstance(data, list) or len(data) != shape[0]:
        raise _bad(
            f"tensor {name!r}: data must be a list of {shape[0]} strings, "
            'or of {"b64": "..."} for bytes'
        )
    if all(isinstance(item, str) for item in data):
        return list(data)
    elements = [_from_base64(name, item) if isinstance(item, dict) else item for item in data]
    if not all(isinstance(element, bytes) for element in elements):
        raise _bad(f"tensor {name!r}: BYTES must contain only strings or only bytes, not both")
    return elements


def count_rows(columns: Mapping[str, Sized]) -> int:
    """How many rows the columns hold.

    Raises:
        CallerError: `bad_inputs` where they disagree.
    """
    counts = set(map(len, columns.values()))
    if len(counts) != 1:
        raise _bad("the tensors have different numbers of rows")
    return counts.pop()


def check_columns(columns: Mapping[str, Column], signature: Signature) -> None:
    """Hold decoded inputs against a signature; one without inputs admits everything.

    Raises:
        CallerError: `bad_inputs`, naming tensor and rows at fault.
    """
    if not signature.inputs:
        return
    expected = {spec.name for spec in signature.inputs}
    if expected != set(columns):
        raise _bad(f"inputs must be {sorted(expected)}, not {sorted(columns)}")
    for spec in signature.inputs:
        column = columns[spec.name]
        if isinstance(column, list):
            _check_strings(spec, column)
        else:
            _check_array(spec, column)


def _check_strings(spec: TensorSpec, column: list[str] | list[bytes]) -> None:
    if spec.datatype != BYTES:
        raise _bad(f"tensor {spec.name!r} must be {spec.datatype}, not BYTES")
    empty = tuple(at for at, item in enumerate(column) if not item)
    if empty:
        raise RequestError.of(
            ErrorKind.BAD_INPUTS, f"tensor {spec.name!r} holds an empty string", rows=empty
        )


def _check_array(spec: TensorSpec, column: Array) -> None:
    given = datatype_of(column.dtype)
    wanted = "FP32" if spec.datatype == "BF16" else spec.datatype
    if given != wanted:
        raise _bad(f"tensor {spec.name!r} must be {spec.datatype}, not {given}")
    fits = len(spec.shape) == column.ndim and all(
        want in (-1, size) for want, size in zip(spec.shape, column.shape, strict=True)
    )
    if not fits:
        raise _bad(
            f"tensor {spec.name!r} must have shape {list(spec.shape)}, not {list(column.shape)}"
        )
    _check_values(spec, column)


def _check_values(spec: TensorSpec, column: Array) -> None:
    if spec.finite and column.dtype.kind == "f":
        _refuse_rows(spec.name, ~np.isfinite(column), "holds NaN or infinity")
    if spec.lowest is not None:
        _refuse_rows(spec.name, column < spec.lowest, f"holds a value under {spec.lowest:g}")
    if spec.highest is not None:
        _refuse_rows(spec.name, column > spec.highest, f"holds a value over {spec.highest:g}")


def _refuse_rows(name: str, wrong: Array, what: str) -> None:
    if wrong.any():
        rows = np.unique(np.nonzero(wrong)[0])
        raise RequestError.of(
            ErrorKind.BAD_INPUTS, f"tensor {name!r} {what}", rows=tuple(int(r) for r in rows)
        )


def encode_columns(columns: Mapping[str, Any], content_type: str) -> list[dict[str, Any]]:
    """Tensors in wire form, ready for `encode_body` in the same content type.

    A column is a numpy array, or a list of `str` or of `bytes`.

    Raises:
        ValueError: an array of a type without a name on the wire.
    """
    return [_encode_tensor(name, column, content_type) for name, column in columns.items()]


def _encode_tensor(name: str, column: Any, content_type: str) -> dict[str, Any]:
    if isinstance(column, np.ndarray):
        datatype = datatype_of(column.dtype)
        data: Any = np.ascontiguousarray(column, DATATYPES[datatype])
        data = data.tobytes() if content_type == MSGPACK else _json_list(data)
        return {"name": name, "datatype": datatype, "shape": list(column.shape), "data": data}
    items = list(column)
    if content_type != MSGPACK:
        items = [_json_string(item) for item in items]
    return {"name": name, "datatype": BYTES, "shape": [len(items)], "data": items}


def encode_rows(name: str, column: Array) -> list[dict[str, Any]]:
    """The rows of an array, which has elements, as tensors of their own: `encode_columns` each."""
    datatype = datatype_of(column.dtype)
    data = np.ascontiguousarray(column, DATATYPES[datatype]).tobytes()
    head = {"name": name, "datatype": datatype, "shape": [1, *column.shape[1:]]}
    size = len(data) // len(column)
    return [{**head, "data": data[at : at + size]} for at in range(0, len(data), size)]


def _json_list(array: Array) -> Any:
    """A flat array for JSON; half floats and non-finite values need care that orjson lacks."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "f" and (flat.dtype.itemsize == 2 or not np.isfinite(flat).all()):
        return {"b64": base64.b64encode(flat.tobytes()).decode()}
    return flat


def _json_string(item: str | bytes) -> Any:
    return {"b64": base64.b64encode(item).decode()} if isinstance(item, bytes) else item


def check_tensor_name(name: Any) -> str:
    """Return `name` where it is the name of a tensor.

    Raises:
        CallerError: `bad_inputs` where it is none.
    """
    if not isinstance(name, str) or not is_name(name):
        raise _bad(f"tensor name {shown(str(name))} is not a name")
    return name
