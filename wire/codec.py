"""JSON and msgpack, strict: what one side may send is what the other side can bound.

Bodies are refused when they repeat a key, nest deeper than `NESTING_MAX`, or are not what their
content type says. JSON has, besides, no NaN, no infinity (nor a number that becomes one), no lone
surrogate, no integer beyond 64 bits and no encoding but UTF-8; msgpack has no extension types, no
keys but strings, and no array longer than `ELEMENTS_MAX`. What a caller sends holds `LISTS_MAX`
lists and maps at most, and `TEXTS_MAX` texts.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from typing import Any, NoReturn

import msgpack
import orjson

from .counting import check_json, check_msgpack
from .errors import ErrorKind, RequestError
from .limits import ELEMENTS_MAX, NESTING_MAX
from .numbers import shown_value

JSON = "application/json"
MSGPACK = "application/msgpack"
CONTENT_TYPES = (JSON, MSGPACK)

# Of a key, or of a text that ends or starts so: there are as many of these as keys, or more.
_KEY_END = re.compile(rb'"[ \t\n\r]*+:')
_INT64_LOWEST = -(1 << 63)
_UINT64_HIGHEST = (1 << 64) - 1


def decode_body(raw: bytes, content_type: str) -> Any:
    """Decode a caller's body.

    Raises:
        CallerError: `bad_inputs` where it is not the content type that it claims to be, or breaks
            one of the bounds above; `unsupported_content_type` for any other type.
    """
    if content_type == MSGPACK:
        body = _decode_msgpack(raw)
    elif content_type == JSON:
        body = _decode_json(raw)
    else:
        raise RequestError.of(
            ErrorKind.UNSUPPORTED_CONTENT_TYPE, f"content_type must be {JSON} or {MSGPACK}"
        )
    if type(body) in _CONTAINERS and _nests_deeper(body, NESTING_MAX):
        raise RequestError.of(ErrorKind.BAD_INPUTS, f"inputs nest deeper than {NESTING_MAX}")
    return body


def encode_body(body: Any, content_type: str) -> bytes:
    """Encode a value that holds only JSON types (and bytes, for msgpack); numpy arrays in JSON."""
    if content_type == MSGPACK:
        packed: bytes = msgpack.packb(body)
        return packed
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def is_number_of_json(number: float) -> bool:
    """Whether JSON has this number: whole ones of 64 bits, and no NaN or infinity."""
    if isinstance(number, int):
        return _INT64_LOWEST <= number <= _UINT64_HIGHEST
    return isfinite(number)


def plain_json(what: str, value: Any) -> Any:
    """A value in JSON's own types, numbers and arrays of numpy as well.

    Raises:
        ValueError: it holds something that would arrive as something else, or not at all; the text
            names it, after `what`.
    """
    return _plain(what, value, NESTING_MAX)


def _plain(what: str, value: Any, levels: int) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple) and not levels:
        raise ValueError(f"{what} nest deeper than {NESTING_MAX}")
    if isinstance(value, Mapping):
        return {_key(what, key): _plain(what, one, levels - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(what, one, levels - 1) for one in value]
    if type(value) is str:
        return _text(what, value)
    if type(value) not in (int, float, bool, type(None)):
        raise ValueError(f"{what} cannot be written in JSON: there is a {type(value).__name__}")
    if value is not None and not is_number_of_json(value):
        raise ValueError(f"{what} hold {shown_value(value)}, a number that JSON does not have")
    return value


def _text(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} hold a lone surrogate") from error
    return text


def _key(what: str, key: Any) -> str:
    if type(key) is not str:
        raise ValueError(f"{what} have a key that is a {type(key).__name__}, not a text")
    return _text(what, key)


def _decode_msgpack(raw: bytes) -> Any:
    # An element takes a byte at least: a header that claims more must not make us allocate it.
    most = min(ELEMENTS_MAX, len(raw))
    try:
        check_msgpack(raw)
        return msgpack.unpackb(
            raw,
            object_pairs_hook=_object_without_repeats,
            ext_hook=_refuse_extension,
            max_array_len=most,
            max_map_len=most,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise _not_a("msgpack", error) from error


def _decode_json(raw: bytes) -> Any:
    try:
        check_json(raw)
        return strict_json(raw)
    except ValueError as error:
        raise _not_a("JSON", error) from error


def strict_json(raw: bytes) -> Any:
    """Decode JSON as the contract has it: what it says is what it means, in every language.

    Raises:
        ValueError: it is none, repeats a key, or holds a number that others would change.
    """
    # orjson refuses all that is not JSON in UTF-8, lone surrogates and infinite numbers included,
    # at a tenth of the standard parser's cost, which finds what orjson does not tell of.
    value = orjson.loads(raw)
    return value if _is_told_whole(raw, value) else _exact_json(raw)


def _is_told_whole(raw: bytes, value: Any) -> bool:
    """Whether no key was repeated, and no integer beyond 64 bits became a float.

    In doubt it says no: for a text that looks like a key, and a float that is as large.
    """
    keys = 0
    rest: list[Any] = [[value]]
    while rest:
        container = rest.pop()
        values = container
        if type(container) is dict:
            keys += len(container)
            values = container.values()
        kinds = set(map(type, values))
        if float in kinds:
            numbers = [one for one in values if type(one) is float] if len(kinds) > 1 else values
            if min(numbers) <= _INT64_LOWEST or max(numbers) > _UINT64_HIGHEST:
                return False
        if kinds & _CONTAINERS:
            rest += [one for one in values if type(one) in _CONTAINERS]
    return next(islice(_KEY_END.finditer(raw), keys, None), None) is None


def _exact_json(raw: bytes) -> Any:
    """Decode what orjson has decoded, without losing anything of it."""
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_object_without_repeats)
        _refuse_long_integers([value])
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    return value


def shallow_json(raw: bytes | str) -> Any:
    """Decode JSON that others wrote, of at most `NESTING_MAX` levels.

    What nests deeper could be read, but not be written again.

    Raises:
        ValueError: it is none, or nests deeper.
    """
    return _shallow(orjson.loads(raw))


def strict_shallow_json(raw: bytes) -> Any:
    """Decode as `strict_json` does, of at most `NESTING_MAX` levels.

    Raises:
        ValueError: as of `strict_json`, or it nests deeper.
    """
    return _shallow(strict_json(raw))


def _shallow(value: Any) -> Any:
    if type(value) in _CONTAINERS and _nests_deeper(value, NESTING_MAX):
        raise ValueError(f"it nests deeper than {NESTING_MAX}")
    return value


def _object_without_repeats(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("a map repeats a key")
    for key in body:
        if type(key) is not str:
            raise ValueError("a key is not a string")
    return body


def _refuse_extension(code: int, _data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} is not allowed")


def _refuse_long_integers(container: Any) -> None:
    # By list, not by number: there may be millions of them. orjson has refused those with so many
    # digits that converting them takes long.
    values = container.values() if type(container) is dict else container
    kinds = set(map(type, values))
    if int in kinds:
        numbers = [value for value in values if type(value) is int] if len(kinds) > 1 else values
        if not _INT64_LOWEST <= min(numbers) <= max(numbers) <= _UINT64_HIGHEST:
            raise ValueError("an integer beyond 64 bits")
    if kinds & _CONTAINERS:
        for value in values:
            if type(value) in _CONTAINERS:
                _refuse_long_integers(value)


def _not_a(encoding: str, error: BaseException) -> RequestError:
    """The error's own words without the quoted input, which may be megabytes of hostile text."""
    if isinstance(error, json.JSONDecodeError):
        reason = f"{error.msg} at character {error.pos}"
    else:
        reason = (str(error) or type(error).__name__)[:120]
    return RequestError.of(ErrorKind.BAD_INPUTS, f"inputs are not {encoding}: {reason}")


_CONTAINERS = frozenset((dict, list))


def _nests_deeper(container: Any, levels: int) -> bool:
    if levels == 0:
        return True
    children = container.values() if type(container) is dict else container
    return not _CONTAINERS.isdisjoint(map(type, children)) and any(
        type(child) in _CONTAINERS and _nests_deeper(child, levels - 1) for child in children
    )


def join_map(head: Mapping[str, Any], key: str, encoded: bytes, content_type: str) -> bytes:
    """Encode `head`, which lacks `key`, with one more entry whose value is encoded already.

    The process that owns the reply never decodes the outputs that the device process encoded: they
    take the place of a null at the end.
    """
    with_null = encode_body({**head, key: None}, content_type)
    if content_type == MSGPACK:
        return with_null[: -len(_MSGPACK_NULL)] + encoded
    return b"".join((with_null[: -len(_JSON_NULL_END)], encoded, b"}"))


_MSGPACK_NULL = b"\xc0"
_JSON_NULL_END = b"null}"


def decode_reply_map(raw: bytes) -> dict[str, Any]:
    """Decode a reply in either encoding: the first byte tells them apart.

    Raises:
        ValueError: it is neither a JSON object nor a msgpack map.
    """
    body = orjson.loads(raw) if raw[:1] == b"{" else msgpack.unpackb(raw)
    if not isinstance(body, dict):
        raise ValueError("a reply is a map")  # noqa: TRY004 - wrong data, not a wrong call
    _shallow({name: part for name, part in body.items() if name != "outputs"})
    return body


def decode_outputs(raw: bytes) -> Any:
    """Decode outputs that lie under a key of their own, in either encoding.

    Raises:
        ValueError: they are no list in JSON or msgpack.
    """
    body = orjson.loads(raw) if raw[:1] == b"[" else msgpack.unpackb(raw)
    if not isinstance(body, list):
        raise ValueError("outputs are a list of tensors")  # noqa: TRY004 - wrong data
    return body


def is_whole_reply(item: bytes) -> bool:
    """Tell a whole reply from a bare id inside a notification.

    A JSON reply starts with a brace, a msgpack map with a byte above 127; a name with neither.
    """
    first = item[:1]
    return first == b"{" or first >= b"\x80"
