"""The request entry: what a caller adds to an ingress stream, read from its headers alone.

The router reads fields, sizes and names; it never decodes `inputs`. One table says for each field
how it is read, and whether it is served yet.
"""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from . import limits
from .codec import CONTENT_TYPES, JSON, MSGPACK
from .errors import ErrorKind, RequestError
from .keys import PRIORITIES
from .names import RULE, is_name, is_name_bytes, shown
from .numbers import Range
from .references import read_reference

FIELD_RANGES = {
    "timeout_ms": Range(1, limits.TIMEOUT_MS_MAX),
    "result_ttl_ms": Range(1000, limits.RESULT_TTL_MS_MAX),
    "length": Range(1, 10_000_000),
    "rows": Range(1, 10_000_000),
    "inputs_bytes": Range(1, limits.INPUTS_BYTES_MAX),
    "delay_ms": Range(0, limits.DELAY_MS_MAX),
    "retries": Range(0, limits.RETRIES_MAX),
}
FIELD_CHOICES: dict[str, tuple[str, ...]] = {
    "v": (str(limits.CONTRACT_VERSION),),
    "priority": PRIORITIES,
    "truncate": ("end", "refuse"),
}

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Request(NamedTuple):
    """A request entry whose headers are in order. Absent fields are None.

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
        """The flat field list of an ingress entry, as `XADD` takes it."""
        flat = [b"id", self.id.encode()]
        if self.inputs_at is None:
            flat += (b"inputs", self.inputs)
        for name in _SENT_FIELDS:
            value = getattr(self, name)
            if value is not None and value != _SENT_DEFAULTS.get(name):
                raw = value if isinstance(value, bytes) else str(value).encode()
                flat += (name.encode(), raw)
        return flat


_SENT_FIELDS = (
    "content_type",
    "accept",
    "version",
    "outputs",
    "parameters",
    "priority",
    "timeout_ms",
    "result_ttl_ms",
    "length",
    "rows",
    "truncate",
    "meta",
    "traceparent",
    "inputs_at",
    "inputs_bytes",
    "delay_ms",
    "retries",
)
_SENT_DEFAULTS = {"content_type": JSON, "priority": "normal"}


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


def _read_int(field: str) -> Callable[[bytes], int]:
    allowed = FIELD_RANGES[field]
    lowest, highest = allowed.lowest, allowed.highest

    def read(raw: bytes) -> int:
        if not raw.isdigit() or len(raw) > 12 or not lowest <= int(raw) <= highest:
            raise _bad(f"{field} must be {allowed.words}")
        return int(raw)

    return read


def _read_choice(field: str) -> Callable[[bytes], str]:
    choices = FIELD_CHOICES[field]
    by_raw = {choice.encode(): choice for choice in choices}

    def read(raw: bytes) -> str:
        choice = by_raw.get(raw)
        if choice is None:
            raise _bad(f"{field} must be one of: {', '.join(choices)}")
        return choice

    return read


def _read_content_type(field: str) -> Callable[[bytes], str]:
    by_raw = {kind.encode(): kind for kind in CONTENT_TYPES}

    def read(raw: bytes) -> str:
        kind = by_raw.get(raw)
        if kind is None:
            raise RequestError.of(
                ErrorKind.UNSUPPORTED_CONTENT_TYPE, f"{field} must be {JSON} or {MSGPACK}"
            )
        return kind

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


_READ: dict[str, Callable[[bytes], Any]] = {
    "v": _read_choice("v"),
    "id": _read_name("id"),
    "content_type": _read_content_type("content_type"),
    "accept": _read_content_type("accept"),
    "version": _read_name("version"),
    "outputs": _read_output_names,
    "parameters": _read_parameters,
    "priority": _read_choice("priority"),
    "timeout_ms": _read_int("timeout_ms"),
    "result_ttl_ms": _read_int("result_ttl_ms"),
    "length": _read_int("length"),
    "rows": _read_int("rows"),
    "truncate": _read_choice("truncate"),
    "meta": _read_meta,
    "traceparent": _read_traceparent,
    "inputs": bytes,
    "inputs_at": read_reference,
    "inputs_bytes": _read_int("inputs_bytes"),
    "delay_ms": _read_int("delay_ms"),
    "retries": _read_int("retries"),
    "cancel": _refuse_cancel,
}

# Fields of the contract whose feature is not served yet. They are refused, not ignored: a caller
# that asks for a session must not get an answer without one.
RESERVED = (
    "session",
    "end",
    "stream",
    "callback",
)
_RESERVED = {name.encode(): name for name in RESERVED}
FIELDS = tuple(_READ)
_READERS = {name.encode(): (name, read) for name, read in _READ.items()}


def find_id(flat: Sequence[bytes]) -> str | None:
    """The entry's id if it has exactly one and that is a name; else nobody can be answered."""
    found = [flat[at + 1] for at in range(0, len(flat) - 1, 2) if flat[at] == b"id"]
    if len(found) != 1 or not is_name_bytes(found[0]):
        return None
    return found[0].decode()


def cancelled_id(flat: Sequence[bytes]) -> str | None:
    """The id that an ingress entry takes back; None for one that is no well-formed `cancel`.

    Such an entry holds `id` and `cancel` = 1; whatever makes a request may not stand beside them.
    """
    given = dict(zip(flat[::2], flat[1::2], strict=False))
    if given.get(b"cancel") != b"1" or b"inputs" in given or b"inputs_at" in given:
        return None
    return find_id(flat)


_ENVELOPE_FIELDS = (b"accept", b"content_type", b"meta", b"traceparent")


def salvage(flat: Sequence[bytes]) -> dict[str, str]:
    """What of an entry's `accept`, `content_type`, `meta` and `traceparent` can be read.

    For the reply to an entry that is refused: it should come in the encoding asked for, and carry
    what the caller recognises it by, whatever else is wrong with the entry.
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
