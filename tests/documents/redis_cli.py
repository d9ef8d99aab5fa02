"""A `redis-cli` for machines without one: `-u URL` or `-s SOCKET`, a command, and what came.

It uses a socket and nothing of batchfleet or its libraries, as a client in another language would.
"""

import os
import socket
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 60.0


def encode(arguments):
    """One command as the protocol of Redis spells it."""
    parts = [argument.encode() for argument in arguments]
    body = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%s" % (len(parts), body)


def read_answer(stream):
    """One answer: text, None for nil, or a list of answers. An error is text as well."""
    kind, rest = stream.read(1), stream.readline()[:-2]
    if kind in (b"$", b"*") and int(rest) < 0:
        return None
    if kind == b"$":
        return stream.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return [read_answer(stream) for _ in range(int(rest))]
    if not kind:
        raise EOFError("the server ended the connection")
    return rest.decode()


def lines_of(answer):
    """An answer as lines; nil is an empty one."""
    if isinstance(answer, list):
        return [line for one in answer for line in lines_of(one)]
    return [answer or ""]


def connected(kind, where, place):
    """A connection to a URL (`-u`), a port (`-p`) or a socket (`-s`)."""
    if kind == "-s":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT_S)
        connection.connect(where)
        return connection
    address = (place.hostname, place.port or 6379) if kind == "-u" else ("127.0.0.1", int(where))
    return socket.create_connection(address, TIMEOUT_S)


def main(arguments):
    """Send one command and print what came."""
    kind, where, *command = arguments
    place = urlsplit(where if kind == "-u" else "")
    database = place.path.strip("/") or "0"
    password = place.password or os.environ.get("REDISCLI_AUTH")
    first = [["AUTH", password]] if password else []
    with connected(kind, where, place) as connection:
        stream = connection.makefile("rb")
        for one in [*first, ["SELECT", database]]:
            connection.sendall(encode(one))
            read_answer(stream)
        connection.sendall(encode(command))
        sys.stdout.write("\n".join(lines_of(read_answer(stream))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
