"""Which Python environments a worker runs: the setting `allow_environments`.

Running an environment's interpreter is running a program, whatever the version in it does. A
record in the server and a manifest in a store name environments, and choose none.
"""

import re
from dataclasses import dataclass

from ..wire.names import shown
from .files import is_sha256

LOCKED = "env:"
_BUILT = "built"
_NONE = "none"
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,511}")


def check_environment_name(name: str) -> str:
    """Return `name` where it is the name of an environment.

    Raises:
        ValueError: it is not; the text says what is expected.
    """
    locked = name.startswith(LOCKED) and is_sha256(name.removeprefix(LOCKED))
    if name and not locked and not _PATH.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is neither the absolute path of a virtual environment nor env:<sha256>"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRule:
    """The setting, read.

    Attributes:
        built: those that `batchfleet models environment build` made in this worker's cache.
        folders: virtual environments by their paths, without a slash at the end.
    """

    built: bool = False
    folders: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str) -> "EnvironmentRule":
        """Read `none`, or a list of `built` and absolute paths; empty is `built`."""
        terms = {term.strip() for term in (text or _BUILT).split(",")}
        folders = frozenset(_plain(term) for term in terms if term.startswith("/"))
        return EnvironmentRule(built=_BUILT in terms, folders=folders)

    def __str__(self) -> str:
        terms = [_BUILT] if self.built else []
        return ",".join([*terms, *sorted(self.folders)]) or _NONE

    def refusal(self, name: str) -> str:
        """Why an environment must not run here, and how to allow it; empty where it may."""
        is_locked = name.startswith(LOCKED)
        if self.built if is_locked else _plain(name) in self.folders:
            return ""
        term = _BUILT if is_locked else name
        return (
            f"its environment {name} is not allowed on this worker: allow_environments is {self}. "
            f"Whoever can write there chooses a program; allow it with --allow-environments {term}"
        )


def _plain(folder: str) -> str:
    return folder.rstrip("/")
