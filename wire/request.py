"""The request entry: what a caller adds to an ingress stream, read from its headers alone.

The router reads fields, sizes and names; it never decodes `inputs`. One table says for each field
how it is read, and whether it is served yet.
"""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from . import limits
from .codec import CONTENT_TYPES, JSON
from .deployment import TRUNCATE_POLICIES
from .errors import ErrorKind, RequestError
from .keys import PRIORITIES
from .names import RULE, is_name, is_name_bytes, shown
from .numbers import Range
from .references import read_reference

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Request(NamedTuple):
    """A request entry whose headers are in order, as `FIELDS` reads them.

    Either `inputs` hold something or `inputs_at` says where they lie.
    """

    id: str
    inputs: bytes = b""
    content_type: str = JSON
    accept: str | None = None
    version: str | None = None
    outputs: str | None = None
    parameters: bytes | None = None
    priority: str = "normal"
    timeout_ms: int | None = None
    result_ttl_ms: int | None = None
    length: int | None = None
    rows: int | None = None
    truncate: str | None = None
    meta: str | None = None
    traceparent: str | None = None
    inputs_at: str | None = None
    inputs_bytes: int | None = None
    delay_ms: int | None = None
    retries: int | None = None
    warnings: tuple[str, ...] = ()

    def to_fields(self) -> list[bytes]:
        """The flat field list of an ingress entry, as `XADD` takes it: what is no default."""
        flat = [b"id", self.id.encode()]
        if self.inputs_at is None:
            flat += (b"inputs", self.inputs)
        for name, default in _SENT:
            value = getattr(self, name)
            if value != default:
                raw = value if isinstance(value, bytes) else str(value).encode()
                flat += (name.encode(), raw)
        return flat


_SENT = [pair for pair in Request._field_defaults.items() if pair[0] not in ("inputs", "warnings")]


def _bad(message: str) -> RequestError:
    return RequestError.of(ErrorKind.BAD_REQUEST, message)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _bad("a field is not UTF-8") from error


def _read_name(field: str) -> Callable[[bytes], str]:
    def read(raw: bytes) -> str:
        if not is_name_bytes(raw):
            raise _bad(f"{field} {shown(raw.decode('ascii', 'replace'))} is not a name: {RULE}")
        return raw.decode()

    return read


def _read_int(field: str, allowed: Range) -> Callable[[bytes], int]:
    lowest, highest = allowed.lowest, allowed.highest

    def read(raw: bytes) -> int:
        if not raw.isdigit() or len(raw) > 12 or not lowest <= int(raw) <= highest:
            raise _bad(f"{field} must be {allowed.words}")
        return int(raw)

    return read


def _read_choice(field: str, choices: Sequence[str]) -> Callable[[bytes], str]:
    by_raw = {choice.encode(): choice for choice in choices}
    is_encoding = choices is CONTENT_TYPES
    kind = ErrorKind.UNSUPPORTED_CONTENT_TYPE if is_encoding else ErrorKind.BAD_REQUEST

    def read(raw: bytes) -> str:
        choice = by_raw.get(raw)
        if choice is None:
            raise RequestError.of(kind, f"{field} must be one of: {', '.join(choices)}")
        return choice

    return read


def _read_output_names(raw: bytes) -> str:
    text = _text(raw)
    names = text.split(",")
    if len(names) > limits.OUTPUT_NAMES_MAX or not all(is_name(name) for name in names):
        raise _bad("outputs must be names of outputs, separated by commas")
    return text


def _read_parameters(raw: bytes) -> bytes:
    if len(raw) > limits.PARAMETERS_BYTES_MAX:
        raise _bad(f"parameters have more than {limits.PARAMETERS_BYTES_MAX} bytes")
    return raw


def _read_meta(raw: bytes) -> str:
    if len(raw) > limits.META_BYTES_MAX:
        raise _bad(f"meta has more than {limits.META_BYTES_MAX} bytes")
    return _text(raw)


def _read_traceparent(raw: bytes) -> str | None:
    # The Trace Context recommendation restarts a trace whose parent cannot be read.
    text = raw.decode("ascii", "replace")
    return text if _TRACEPARENT.fullmatch(text) else None


def _refuse_cancel(_: bytes) -> None:
    raise _bad("cancel must be 1, and id the only other field")


class Field(NamedTuple):
    """One field of a request entry; `Request` says what it is where it is left out.

    Attributes:
        name: on the wire, in `Request`, and in the options of a client.
        kind: the numbers or the words that it takes, or what else reads its bytes.
        is_carried: the router copies it into the work entry.
        meaning: what it asks for, as the help of a command says it; empty where none offers it.
    """

    name: str
    kind: Range | tuple[str, ...] | Callable[[bytes], Any]
    is_carried: bool = False
    meaning: str = ""


_TABLE = (
    Field("v", (str(limits.CONTRACT_VERSION),)),
    Field(
        "id",
        _read_name("id"),
        meaning="Id of the request. If one with this id exists, wait for its reply instead.",
    ),
    Field("inputs", bytes),
    Field("inputs_at", read_reference),
    Field("inputs_bytes", Range(1, limits.INPUTS_BYTES_MAX), is_carried=True),
    Field("content_type", CONTENT_TYPES),
    Field("accept", CONTENT_TYPES, is_carried=True),
    Field("version", _read_name("version"), True, "Version to run; default: the active one."),
    Field("parameters", _read_parameters, True, "Parameters for the model, a JSON object."),
    Field("outputs", _read_output_names, True, "Return only these outputs."),
    Field("priority", PRIORITIES, meaning="Queue priority."),
    Field("truncate", TRUNCATE_POLICIES, True, "Cut texts over max_length (end) or refuse them."),
    Field(
        "timeout_ms",
        Range(1, limits.TIMEOUT_MS_MAX),
        True,
        "Time until the deadline; default: the model's timeout_ms.",
    ),
    Field(
        "delay_ms",
        Range(0, limits.DELAY_MS_MAX),
        meaning="Run it after this time; the timeout starts then.",
    ),
    Field(
        "retries", Range(0, limits.RETRIES_MAX), True, "Maximum number of retries after a failure."
    ),
    Field("result_ttl_ms", Range(1000, limits.RESULT_TTL_MS_MAX), is_carried=True),
    Field("length", Range(1, 10_000_000)),
    Field("rows", Range(1, 10_000_000), is_carried=True),
    Field("meta", _read_meta, True, "Text that is returned with the reply."),
    Field("traceparent", _read_traceparent, is_carried=True),
    Field("cancel", _refuse_cancel),
)


def _reader(field: Field) -> Callable[[bytes], Any]:
    if isinstance(field.kind, Range):
        return _read_int(field.name, field.kind)
    return _read_choice(field.name, field.kind) if isinstance(field.kind, tuple) else field.kind


FIELDS = {field.name: field for field in _TABLE}
FIELD_RANGES = {field.name: field.kind for field in _TABLE if isinstance(field.kind, Range)}
FIELD_CHOICES = {field.name: field.kind for field in _TABLE if isinstance(field.kind, tuple)}
_READERS = {field.name.encode(): (field.name, _reader(field)) for field in _TABLE}

# Fields of the contract whose feature is not served yet. They are refused, not ignored: a caller
# that asks for a session must not get an answer without one.
RESERVED = ("session", "end", "stream", "callback")
_RESERVED = {name.encode(): name for name in RESERVED}


def find_id(flat: Sequence[bytes]) -> str | None:
    """The entry's id if it has exactly one and that is a name; else nobody can be answered."""
    found = [flat[at + 1] for at in range(0, len(flat) - 1, 2) if flat[at] == b"id"]
    if len(found) != 1 or not is_name_bytes(found[0]):
        return None
    return found[0].decode()


def cancelled_id(flat: Sequence[bytes]) -> str | None:
    """The id that an ingress entry takes back; None for one that is no well-formed `cancel`.

    Such an entry has `id` and `cancel` = 1, and no field of a request.
    """
    given = dict(zip(flat[::2], flat[1::2], strict=False))
    if given.get(b"cancel") != b"1" or b"inputs" in given or b"inputs_at" in given:
        return None
    return find_id(flat)


_ENVELOPE_FIELDS = (b"accept", b"content_type", b"meta", b"traceparent")


def salvage(flat: Sequence[bytes]) -> dict[str, str]:
    """What of an entry's `accept`, `content_type`, `meta` and `traceparent` can be read.

    For the reply to an entry that is refused: it should come in the encoding asked for, and carry
    what the caller recognises it by, even if the entry is invalid otherwise.
    """
    found: dict[str, str] = {}
    for at in range(0, min(len(flat), 2 * limits.ENTRY_FIELDS_MAX) - 1, 2):
        if flat[at] not in _ENVELOPE_FIELDS:
            continue
        name, read = _READERS[flat[at]]
        try:
            value = read(flat[at + 1])
        except RequestError:
            continue  # this very field may be what the entry is refused for
        if value is not None:
            found[name] = value
    return found


def parse_request(flat: Sequence[bytes], max_request_bytes: int) -> Request:
    """Read an ingress entry.

    Args:
        flat: field, value, field, value … as the server returns them.
        max_request_bytes: the deployment's bound on `inputs`, wherever they lie.

    Raises:
        CallerError: `bad_request` (too many fields, a field twice, a reserved or ill-formed one),
            `unsupported_content_type`, or `too_large`.
    """
    if len(flat) > 2 * limits.ENTRY_FIELDS_MAX:
        raise _bad(f"the entry has {len(flat) // 2} fields; {limits.ENTRY_FIELDS_MAX} are allowed")
    given = {flat[at]: flat[at + 1] for at in range(0, len(flat), 2)}
    if 2 * len(given) != len(flat):
        raise _bad(f"field {_first_repeat(flat[::2])} is given twice")
    values: dict[str, Any] = {}
    unknown: list[bytes] = []
    for name, raw in given.items():
        known = _READERS.get(name)
        if known is not None:
            field, read = known
            values[field] = read(raw)
        elif name in _RESERVED:
            raise _bad(f"field {_RESERVED[name]} is reserved and not available yet")
        else:
            unknown.append(name)
    return _assemble(values, unknown, max_request_bytes)


def _first_repeat(names: Sequence[bytes]) -> str:
    repeat = next(name for at, name in enumerate(names) if name in names[:at])
    return shown(repeat.decode("ascii", "replace"))


def _assemble(values: dict[str, Any], unknown: list[bytes], max_request_bytes: int) -> Request:
    if "id" not in values:
        raise _bad("field id is missing")
    is_elsewhere = "inputs_at" in values
    if is_elsewhere and "inputs" in values:
        raise _bad("give either inputs or inputs_at")
    if not values.get("inputs") and not is_elsewhere:
        raise _bad("field inputs is missing or empty")
    size = values.get("inputs_bytes", 0) if is_elsewhere else len(values["inputs"])
    if size > max_request_bytes:
        raise RequestError.of(
            ErrorKind.TOO_LARGE, f"inputs are {size} bytes; {max_request_bytes} are allowed"
        )
    values.pop("v", None)
    if values.get("traceparent", "") is None:
        values["warnings"] = ("traceparent is ill-formed and was ignored",)
    if unknown:
        # Finding the nearest known name is slow: only the names that will be told are looked at.
        told = unknown[: limits.WARNINGS_MAX - 1]
        values["warnings"] = (*values.get("warnings", ()), *map(_unknown_field_warning, told))
    return Request(**values)


_LONGEST_GUESS = 32


def _unknown_field_warning(name: bytes) -> str:
    text = name.decode("ascii", "replace")
    nearest = get_close_matches(text[:_LONGEST_GUESS], FIELDS, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown field {shown(text)} was ignored{hint}"
