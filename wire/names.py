"""The one alphabet for model, version, tenant, session, worker and request names.

A name may become part of a Redis key, a path and a log line, so everything outside this alphabet
is refused and never quoted or repaired.
"""

import re
from fnmatch import fnmatchcase
from typing import Any

from .errors import ErrorKind, RequestError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_BYTES = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_CHARACTERS = 40


def is_name(text: str) -> bool:
    """Tell whether `text` is a name of the contract."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def is_name_bytes(raw: bytes) -> bool:
    """Tell whether `raw` spells a name; the same rule as `is_name` without decoding."""
    return _NAME_BYTES.fullmatch(raw) is not None and b".." not in raw


def require_name(what: str, text: Any) -> str:
    """Return `text` if it is a name.

    Raises:
        CallerError: `bad_request`, naming `what` and showing the start of the offending text.
    """
    if not isinstance(text, str):
        kind = type(text).__name__
        raise RequestError.of(ErrorKind.BAD_REQUEST, f"{what} is a {kind}, not a name: {RULE}")
    if not is_name(text):
        raise RequestError.of(ErrorKind.BAD_REQUEST, f"{what} {shown(text)} is not a name: {RULE}")
    return text


def matches(name: str, patterns: str) -> bool:
    """Whether a name fits one of the patterns of a list such as `a,ocr-*`."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


RULE = "use 1 to 128 of A-Z a-z 0-9 . _ - with a letter or digit first and no '..'"


def shown(text: str) -> str:
    """Quote the start of hostile text so that it is safe in a message or a log line."""
    head = text[:_SHOWN_CHARACTERS]
    return ascii(head) + ("…" if len(text) > _SHOWN_CHARACTERS else "")
