"""Inputs that lie at a URL under a prefix that the deployment allows.

A redirect is not followed: it would lead out of the prefix. HTTP goes through the standard
library, where that can be held to; everything else through fsspec.
"""

from collections.abc import Callable
from http.client import HTTPException
from typing import IO, NoReturn
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import fsspec.core

from ...service.clock import Clock
from ...wire.deployment import Limits
from ...wire.errors import ErrorKind, RequestError
from ...wire.references import require_allowed

_CHUNK_BYTES = 256 * 1024
_FETCH_MS_MAX = 5_000.0


def fetch(url: str, limits: Limits, clock: Clock) -> bytes:
    """Read what lies at a URL, up to `max_request_bytes`, for 5 s or half of `preprocess_ms`.

    A backend of fsspec that hangs in one read outlives that; the limit of preprocessing ends it.

    Raises:
        CallerError: `forbidden_reference`, `payload_missing` or `too_large`.
    """
    require_allowed(url, limits.input_prefixes)
    allowed_ms = min(_FETCH_MS_MAX, limits.preprocess_ms / 2)
    reader = _Reader(limits.max_request_bytes, clock, clock.monotonic_ms() + allowed_ms)
    if url.startswith(("http://", "https://")):
        inputs = _fetch_http(url, reader, allowed_ms / 1000)
    else:
        inputs = _fetch_file(url, reader)
    if not inputs:
        raise _missing("nothing lies at inputs_at")
    return inputs


class _Reader:
    """Reads a file to its end, within bounds of size and time."""

    def __init__(self, most: int, clock: Clock, deadline_ms: float) -> None:
        self._most = most
        self._clock = clock
        self._deadline_ms = deadline_ms

    def read(self, read_some: Callable[[int], bytes]) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := read_some(_CHUNK_BYTES):
            size += len(chunk)
            chunks.append(chunk)
            if size > self._most:
                raise RequestError.of(ErrorKind.TOO_LARGE, f"inputs are over {self._most} bytes")
            if self._clock.monotonic_ms() > self._deadline_ms:
                raise _missing("reading inputs_at took too long")
        return b"".join(chunks)


def _fetch_http(url: str, reader: _Reader, timeout_s: float) -> bytes:
    try:
        with _opener().open(url, timeout=timeout_s) as response:
            # `read` would wait for a whole chunk however slowly it trickles in.
            return reader.read(response.read1)
    except HTTPError as error:
        error.close()
        raise _missing(f"inputs_at answered with status {error.code}") from error
    except (URLError, HTTPException, OSError) as error:
        raise _missing(f"inputs_at cannot be read: {type(error).__name__}") from error


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, _request: Request, answer: IO[bytes], *_: object) -> NoReturn:
        answer.close()
        raise RequestError.of(ErrorKind.FORBIDDEN_REFERENCE, "inputs_at redirects elsewhere")


def _fetch_file(url: str, reader: _Reader) -> bytes:
    try:
        files, path = fsspec.core.url_to_fs(url)
        opened: IO[bytes]
        with files.open(path, "rb") as opened:
            return reader.read(opened.read)
    except RequestError:
        raise
    except Exception as error:
        # Each backend raises errors of its own client library, with no root but Exception.
        raise _missing(f"inputs_at cannot be read: {type(error).__name__}") from error


def _missing(message: str) -> RequestError:
    return RequestError.of(ErrorKind.PAYLOAD_MISSING, message)
