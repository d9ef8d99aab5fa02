"""A client of nothing but a socket: what somebody types into a terminal, for two commands."""

import socket
from urllib.parse import urlsplit

TIMEOUT_S = 60.0


class ServerSaidError(Exception):
    """The server answered a command with an error."""


class RawClient:
    """One connection that sends commands and reads answers of the Redis protocol, version 2."""

    def __init__(self, redis_url):
        parts = urlsplit(redis_url)
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(parts.path)
        else:
            address = (parts.hostname, parts.port)
            self._socket = socket.create_connection(address, TIMEOUT_S)
        self._answers = self._socket.makefile("rb")
        if parts.password:
            self.send("AUTH", parts.password)

    def send(self, *words):
        """Send one command and return its answer; bulk strings are bytes, nil is None."""
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        command = b"*%d\r\n" % len(encoded)
        command += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        self._socket.sendall(command)
        return self._read()

    def _read(self):
        line = self._answers.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise ServerSaidError(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise ConnectionError(f"no answer of the protocol: {line[:80]!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._answers.close()
        self._socket.close()


class TwoCommandCaller:
    """Asks a model by the two commands of docs/protocol.md, with JSON both ways."""

    def __init__(self, client, namespace, model):
        self._client = client
        self._prefix = f"{namespace}:{{{model}}}"

    def submit(self, request_id, inputs):
        """XADD; returns the entry's id."""
        ingress = f"{self._prefix}:in:default"
        return self._client.send(
            "XADD", ingress, "NOMKSTREAM", "*", "id", request_id, "inputs", inputs
        )

    def wait(self, request_id):
        """BLMOVE from the reply key to itself; returns the reply as it lies there."""
        key = self.reply_key(request_id)
        return self._client.send("BLMOVE", key, key, "LEFT", "LEFT", "30")

    def all_items(self, request_id):
        """Everything under the reply key."""
        return self._client.send("LRANGE", self.reply_key(request_id), "0", "-1")

    def reply_key(self, request_id):
        return f"{self._prefix}:re:default:{request_id}"
