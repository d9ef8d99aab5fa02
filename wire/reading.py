"""Reading the parts of a deploy record, each with an error that says what is wrong with it."""

from collections.abc import Mapping
from typing import Any

from .codec import shallow_json
from .errors import SettingsError
from .numbers import Range, shown_value

BYTES_PER_TOKEN = Range(0, 1_000_000, whole=False)
_WHOLE = Range(0, (1 << 63) - 1)


def from_json(what: str, raw: bytes) -> Any:
    """Decode JSON.

    Raises:
        SettingsError: it is none.
    """
    try:
        return shallow_json(raw)
    except ValueError as error:
        raise SettingsError(f"{what} is not JSON: {error}") from error


def as_map(what: str, value: Any) -> Mapping[str, Any]:
    """`value`, which must be a map.

    Raises:
        SettingsError: it is none.
    """
    if not isinstance(value, Mapping):
        raise SettingsError(f"{what} is a {type(value).__name__}, not a map")
    return value


def text_in(wire: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """The text `name` of a version's record.

    Raises:
        SettingsError: it is no text.
    """
    value = wire.get(name, default)
    if not isinstance(value, str):
        raise SettingsError(f"{name} of a version's record is not a text")
    return value


def ratio(value: Any) -> float:
    """Bytes a token, 0 or more.

    Raises:
        SettingsError: it is no such number.
    """
    if BYTES_PER_TOKEN.fault(value):
        raise SettingsError(f"bytes_per_token is {shown_value(value)}; it must be 0 or more")
    return float(value)


def whole_numbers(what: str, raw: bytes) -> list[int]:
    """A JSON list of whole numbers from 0 on.

    Raises:
        SettingsError: it is none.
    """
    listed = from_json(what, raw)
    if not isinstance(listed, list) or any(map(_WHOLE.fault, listed)):
        raise SettingsError(f"{what} is {shown_value(listed)}; it must be whole numbers")
    return listed


def fields_after(raw: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    """The fields of a hash that begin with a prefix, by what follows it."""
    size = len(prefix)
    return {name[size:]: value for name, value in raw.items() if name.startswith(prefix)}


# Epoch and nonce are sent back to the server, which compares them byte for byte.
def epoch_in(raw: bytes) -> int:
    """The epoch of a deploy record.

    Raises:
        SettingsError: it is no number that any program wrote.
    """
    if not raw.isdigit() or len(raw) > 19 or str(int(raw)).encode() != raw:
        raise SettingsError("epoch of a deploy record is not a whole number")
    return int(raw)


def nonce_in(raw: bytes) -> str:
    """The nonce of a deploy record.

    Raises:
        SettingsError: it is no text.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise SettingsError("nonce of a deploy record is not UTF-8") from None
