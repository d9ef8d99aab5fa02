"""Commands as the bytes that go to the server: RESP, the protocol of Redis, is spelt here alone."""

from collections.abc import Sequence
from typing import Any

import hiredis


def pack(parts: Sequence[Any]) -> bytes:
    """A command of texts, bytes and numbers; `TypeError` for others."""
    packed: bytes = hiredis.pack_command(tuple(parts))
    return packed


def head_of(packed: bytes) -> list[bytes]:
    """A packed command and its first argument."""
    lines = packed.split(b"\r\n", 5)
    return [lines[at] for at in (2, 4) if at < len(lines)]


class Template:
    """A command that is packed once, but for some arguments that `fill` adds.

    `gaps` are arguments of `parts`, in their order; none may occur in the command twice.
    """

    def __init__(self, parts: Sequence[Any], gaps: Sequence[bytes]) -> None:
        packed = pack(parts).replace(b"%", b"%%")
        for gap in gaps:
            before, after = packed.split(b"$%d\r\n%b" % (len(gap), gap))
            packed = before + b"$%d\r\n%b" + after
        self._format = packed

    def fill(self, *arguments: bytes) -> bytes:
        """The packed command with these arguments in its gaps."""
        with_lengths: list[int | bytes] = []
        for argument in arguments:
            with_lengths += (len(argument), argument)
        return self._format % tuple(with_lengths)
