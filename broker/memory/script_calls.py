"""What a script in Python is called with."""

from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[..., Any]
"""`redis.call`: runs one command of the database that the script was called on."""

Keys = Sequence[bytes]
Args = Sequence[bytes]
ScriptFunction = Callable[[Call, Keys, Args], Any]


def member_of(fields: Sequence[bytes]) -> bytes:
    """How an entry's request is named in `due`; the router writes id first, tenant second."""
    request_id, tenant = (fields[at] if len(fields) > at else b"" for at in (1, 3))
    return tenant + b":" + request_id
