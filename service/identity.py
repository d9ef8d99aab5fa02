"""Who a process is: the name under which a worker beats, owns a stream and signs its receipts."""

import re

from ..wire.names import is_name

_HOST_CHARACTERS_MAX = 40
_NONCE_CHARACTERS = 6
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")


def new_worker_name(hostname: str, pid: int, nonce: str) -> str:
    """Make the name `host-pid-nonce` of a worker, for example `gpu-3-4711-9f2c01`.

    The host is cut to 40 characters and the nonce to 6; characters outside the alphabet of names
    become `-`, dots too, so that a name shows where its parts end. Host and process id are for
    people; the nonce is what keeps two lives of one container (same host, same pid 1) apart, so
    the caller draws a new one for each start.

    Raises:
        ValueError: the nonce is shorter than 6 characters of the alphabet, or the pid is negative.
    """
    host = _FOREIGN.sub("-", hostname)[:_HOST_CHARACTERS_MAX].strip("-_") or "host"
    tail = nonce[:_NONCE_CHARACTERS]
    if pid < 0 or len(tail) < _NONCE_CHARACTERS or _FOREIGN.search(tail):
        raise ValueError(f"no worker name can be made of pid {pid} and nonce {nonce!r}")
    name = f"{host}-{pid}-{tail}"
    if not is_name(name):
        raise ValueError(f"{name!r} is not a valid worker name")
    return name
