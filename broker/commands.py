"""Commands as values: what is sent, and how the answer is read. No I/O here.

Both executors (`broker/blocking.py`, `broker/looping.py`) run the same values, so every command is
written once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Part = str | bytes | int | float

_PART = re.compile(r"^-- part: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file with its parts, known to the server by the SHA1 of its source."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script `broker/lua/<name>.lua`.

    A line `-- part: <other>` stands for what several scripts share, `broker/lua/parts/<other>.lua`.
    """
    folder = files("batchfleet.broker") / "lua"
    parts = folder / "parts"
    source = _PART.sub(
        lambda found: (parts / f"{found[1]}.lua").read_text(),
        (folder / f"{name}.lua").read_text(),
    )
    return Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One command: its parts as they go to the server, and a reader for the raw answer.

    `script` is set where the command runs one, so that an executor can load it when the server
    says that it does not know it. `block_s` is how long the server may wait before it answers.
    `bytes_max`, where it is set, is how much of an answer is read: a longer one is broken off.
    """

    parts: Sequence[Part]
    read: Callable[[Any], T]
    script: Script | None = field(default=None)
    block_s: float = 0.0
    bytes_max: int = 0


def call(
    name: str, keys: Sequence[Part], args: Sequence[Part], read: Callable[[Any], T]
) -> Command[T]:
    """The command that runs a script with these keys and arguments."""
    known = script(name)
    return Command(("EVALSHA", known.sha, len(keys), *keys, *args), read, known)


def plain(read: Callable[[Any], T], *parts: Part) -> Command[T]:
    """A command that is not a script."""
    return Command(parts, read)


def waiting_command(
    read: Callable[[Any], T], block_s: float, *parts: Part, bytes_max: int = 0
) -> Command[T]:
    """A command that the server may answer up to `block_s` late."""
    return Command(parts, read, block_s=block_s, bytes_max=bytes_max)


def as_is(raw: Any) -> Any:
    """The raw answer."""
    return raw


def as_names(raw: Sequence[bytes]) -> list[str]:
    """An answer that is a set or list of names, in a stable order."""
    return sorted(item.decode(errors="replace") for item in raw)


def as_map(raw: Sequence[bytes]) -> dict[str, bytes]:
    """An answer that is a flat hash, where fields and values take turns."""
    return {raw[at].decode(errors="replace"): raw[at + 1] for at in range(0, len(raw), 2)}


def as_flat(fields: Mapping[str, str | bytes]) -> list[Part]:
    """A hash as arguments, where fields and values take turns."""
    return [part for pair in fields.items() for part in pair]
