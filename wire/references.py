"""Where inputs may lie outside of their entry: under the request's own blob key, or at a URL.

A URL must lie under a prefix that the deployment allows. Spellings by which a URL could mean
another place than it seems to are refused, not resolved.
"""

import re
from collections.abc import Sequence

from .errors import ErrorKind, RequestError
from .limits import REFERENCE_BYTES_MAX

BLOB = "blob"
# What `outputs_at` of a reply starts with; the key follows.
BLOB_SCHEME = "blob:"

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[!-~]+")
# Ways up or out of a prefix: a parent folder, however it is spelled, and fsspec's chains of URLs.
_HIDDEN_STEPS = ("..", "%2e", "%2f", "%5c", "%00", "\\", "::", "#")


def read_reference(raw: bytes) -> str:
    """Read the field `inputs_at`: the word `blob`, or a URL.

    Raises:
        CallerError: `bad_request`, it is neither.
    """
    text = raw.decode("ascii", "replace")
    if len(raw) > REFERENCE_BYTES_MAX or (text != BLOB and _URL.fullmatch(text) is None):
        raise RequestError.of(
            ErrorKind.BAD_REQUEST,
            f"inputs_at must be {BLOB!r} or a URL of at most {REFERENCE_BYTES_MAX} characters",
        )
    return text


def is_prefix(text: str) -> bool:
    """Tell whether `text` may allow URLs: whole folders only, so that no host can be prolonged."""
    return _URL.fullmatch(text) is not None and text.endswith("/") and not _hides_its_path(text)


def require_allowed(url: str, prefixes: Sequence[str]) -> None:
    """Hold a URL against the prefixes that a deployment allows.

    Raises:
        CallerError: `forbidden_reference`.
    """
    if _hides_its_path(url) or not any(url.startswith(prefix) for prefix in prefixes):
        raise RequestError.of(
            ErrorKind.FORBIDDEN_REFERENCE,
            "inputs_at is not under a URL prefix that this model allows",
        )


def _hides_its_path(url: str) -> bool:
    lowered = url.lower()
    return any(spelling in lowered for spelling in _HIDDEN_STEPS)
