"""Inputs that lie at a URL under a prefix that the deployment allows.

A redirect is not followed: it would lead out of the prefix. HTTP goes through the standard
library, where that can be held to; everything else through fsspec.
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any, NoReturn, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

import fsspec.core

from ...service.clock import Clock
from ...wire.deployment import Limits
from ...wire.errors import ErrorKind, RequestError
from ...wire.references import require_allowed

_CHUNK_BYTES = 256 * 1024
_FETCH_MS_MAX = 5_000.0
# Threads of a tenant that were given up and still wait: for a name server, or in a backend's own
# client.
_LEFT_MAX = 32


class Fetcher:
    """Reads what lies at URLs, each with one deadline over all of it. Safe to use from any thread.

    Looking up a name, connecting and every read have timeouts of their own, or none; so each fetch
    runs on a thread that can be left behind, with its connection shut, so that it ends soon.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: Counter[str] = Counter()  # of each tenant; guarded by _lock

    def fetch(self, url: str, limits: Limits, tenant: str) -> bytes:
        """Read what lies at a URL, up to `max_request_bytes`, for 5 s or half of `preprocess_ms`.

        Raises:
            CallerError: `forbidden_reference`, `payload_missing` or `too_large`.
        """
        require_allowed(url, limits.input_prefixes)
        allowed_ms = min(_FETCH_MS_MAX, limits.preprocess_ms / 2)
        reader = _Reader(limits.max_request_bytes, self._clock, allowed_ms)
        read = _HttpRead(url, reader) if _is_http(url) else _FileRead(url, reader)
        self._begin(tenant)
        inputs = _Attempt(read, partial(self._end, tenant)).result(allowed_ms / 1000)
        if not inputs:
            raise _missing("there is nothing at inputs_at")
        return inputs

    def _begin(self, tenant: str) -> None:
        with self._lock:
            if self._threads[tenant] >= _LEFT_MAX:
                raise _missing("too many servers of inputs_at do not respond")
            self._threads[tenant] += 1

    def _end(self, tenant: str) -> None:
        with self._lock:
            self._threads -= Counter((tenant,))  # which forgets what is at zero


class _Attempt:
    """One fetch on a thread of its own; `over` is called when that ends."""

    def __init__(self, read: "_Read", over: Callable[[], None]) -> None:
        self._read = read
        self._over = over
        self._is_done = threading.Event()
        self._inputs = b""
        self._error: BaseException | None = None

    def result(self, timeout_s: float) -> bytes:
        """What was read; the reading is given up after `timeout_s`."""
        threading.Thread(target=self._run, name="fetch", daemon=True).start()
        if not self._is_done.wait(timeout_s):
            self._read.give_up()
            raise _missing("reading inputs_at took too long")
        if self._error is not None:
            raise self._error
        return self._inputs

    def _run(self) -> None:
        try:
            self._inputs = self._read.run()
        except BaseException as error:  # noqa: BLE001 - raised again where the result is wanted
            self._error = error
        finally:
            self._over()
            self._is_done.set()


class _Read(Protocol):
    def run(self) -> bytes: ...

    def give_up(self) -> None: ...


class _Reader:
    """Reads a file to its end, within bounds of size and time."""

    def __init__(self, most: int, clock: Clock, allowed_ms: float) -> None:
        self._most = most
        self._clock = clock
        self._deadline_ms = clock.monotonic_ms() + allowed_ms
        self.timeout_s = allowed_ms / 1000

    def read(self, read_some: Callable[[int], bytes]) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := read_some(_CHUNK_BYTES):
            size += len(chunk)
            chunks.append(chunk)
            if size > self._most:
                raise RequestError.of(
                    ErrorKind.TOO_LARGE, f"inputs have more than {self._most} bytes"
                )
            if self._clock.monotonic_ms() > self._deadline_ms:
                raise _missing("reading inputs_at took too long")
        return b"".join(chunks)


def host_of(url: str) -> str:
    """The host that a URL leads to: what is slow there holds up only what lies there."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}".lower()


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


class _HttpRead:
    """A GET whose connection can be shut while another thread waits in it."""

    def __init__(self, url: str, reader: _Reader) -> None:
        self._url = url
        self._reader = reader
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None  # guarded by _lock
        self._is_given_up = False  # guarded by _lock

    def run(self) -> bytes:
        """Read it.

        Raises:
            CallerError: it cannot be read.
        """
        handlers = (_NoRedirects, _PlainHandler(self._keep), _TlsHandler(self._keep))
        try:
            with build_opener(*handlers).open(
                self._url, timeout=self._reader.timeout_s
            ) as response:
                # `read` would wait for a whole chunk however slowly it trickles in.
                return self._reader.read(response.read1)
        except HTTPError as error:
            error.close()
            raise _missing(f"inputs_at answered with status {error.code}") from error
        except (URLError, HTTPException, OSError) as error:
            raise _missing(f"inputs_at cannot be read: {type(error).__name__}") from error
        finally:
            self._release()

    def give_up(self) -> None:
        """Have `run` end soon."""
        with self._lock:
            self._is_given_up = True
            _shut(self._socket)

    def _keep(self, connected: socket.socket) -> None:
        self._release()
        with self._lock:
            self._socket = connected
            if self._is_given_up:
                _shut(connected)

    def _release(self) -> None:
        with self._lock:
            connected, self._socket = self._socket, None
        if connected is not None:
            connected.close()


def _shut(connected: socket.socket | None) -> None:
    if connected is not None:
        with suppress(OSError):  # it is closed already
            connected.shutdown(socket.SHUT_RDWR)


def _connect(keep: Callable[[socket.socket], None], *args: Any) -> socket.socket:
    """As `http.client` connects; `keep` gets the socket before anything goes over it."""
    connected = socket.create_connection(*args)
    keep(connected.dup())  # TLS takes the descriptor of its socket over
    return connected


def _kept(connection: HTTPConnection, keep: Callable[[socket.socket], None]) -> HTTPConnection:
    # The way that the class itself is made to use other sockets; TLS is put around what it returns.
    connection._create_connection = partial(_connect, keep)  # type: ignore[attr-defined] # noqa: SLF001
    return connection


class _PlainHandler(HTTPHandler):
    def __init__(self, keep: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._keep = keep

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(
            lambda host, **given: _kept(HTTPConnection(host, **given), self._keep), req
        )


class _TlsHandler(HTTPSHandler):
    def __init__(self, keep: Callable[[socket.socket], None]) -> None:
        super().__init__()
        self._keep = keep

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(
            lambda host, **given: _kept(HTTPSConnection(host, **given), self._keep), req
        )


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, _request: Request, answer: IO[bytes], *_: object) -> NoReturn:
        answer.close()
        raise RequestError.of(
            ErrorKind.FORBIDDEN_REFERENCE, "inputs_at is a redirect, which is not followed"
        )


class _FileRead:
    """A file of any backend of fsspec."""

    def __init__(self, url: str, reader: _Reader) -> None:
        self._url = url
        self._reader = reader

    def run(self) -> bytes:
        """Read it.

        Raises:
            CallerError: it cannot be read.
        """
        try:
            files, path = fsspec.core.url_to_fs(self._url)
            opened: IO[bytes]
            with files.open(path, "rb") as opened:
                return self._reader.read(opened.read)
        except RequestError:
            raise
        except Exception as error:
            # Each backend raises errors of its own client library, with no root but Exception.
            raise _missing(f"inputs_at cannot be read: {type(error).__name__}") from error

    def give_up(self) -> None:
        """It ends after the read that it is in, whenever that may be."""


def _missing(message: str) -> RequestError:
    return RequestError.of(ErrorKind.PAYLOAD_MISSING, message)
