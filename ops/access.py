"""How the same user's other programs reach a fleet's server, with no password where others look.

A private server's socket is its user's alone, so its URL holds no secret. Where a loopback port was
asked for, the URL with its password lies in a file that its user alone may read.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..broker.embedded import EmbeddedServer
from ..service.addresses import masked_url

_URL_FILE = "redis-url"
_PASSWORD_FILE = "redis-password"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What may be shown of the way to a server.

    Attributes:
        url: where it is, with its password masked.
        url_file: a file that holds the URL with its password; None where the URL has none, or the
            server is not ours.
        redis_cli: the start of a command line for `redis-cli`.
    """

    url: str
    url_file: Path | None
    redis_cli: str

    @property
    def export(self) -> str:
        """The line for a shell that has clients and commands find the server."""
        if self.url_file is not None:
            return f"export BATCHFLEET_REDIS_URL_FILE={shlex.quote(str(self.url_file))}"
        return f"export BATCHFLEET_REDIS_URL={self.url}"

    def to_json(self) -> dict[str, Any]:
        """What a script needs to reach it."""
        file = {} if self.url_file is None else {"redis_url_file": str(self.url_file)}
        return {"redis_url": self.url, **file}


def access_to(server: EmbeddedServer) -> Access:
    """The way to a private server; writes the files that hold its password, if it has one.

    Raises:
        OSError: they cannot be written.
    """
    if not server.port:
        socket = shlex.quote(str(server.socket_path))
        return Access(url=server.url, url_file=None, redis_cli=f"redis-cli -s {socket}")
    url_file, password_file = server.folder / _URL_FILE, server.folder / _PASSWORD_FILE
    _write_secret(url_file, server.url)
    _write_secret(password_file, server.password)
    login = f"REDISCLI_AUTH=$(cat {shlex.quote(str(password_file))})"
    return Access(
        url=masked_url(server.url),
        url_file=url_file,
        redis_cli=f"{login} redis-cli -p {server.port}",
    )


def access_by(url: str) -> Access:
    """The way to a server that somebody named."""
    masked = masked_url(url)
    return Access(url=masked, url_file=None, redis_cli=f"redis-cli -u {masked}")


def _write_secret(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
