"""What lies in a folder of a local store: folders that may be models or versions, and what is odd.

A link is followed where it stays below the store's root. What leads out of it is not: whoever may
write to the store would otherwise choose what a worker reads elsewhere.
"""

import os
import re
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from ..service.regular_files import open_regular
from ..wire.errors import StoreError
from ..wire.names import RULE, is_name, shown

_OPENED = Path("/proc/self/fd")
# Besides what begins with a dot: snapshots, and what file systems and Python put anywhere.
_NO_MODELS = ("lost+found", "__pycache__")


def version_order(version: str) -> tuple[list[Any], str]:
    """Sort key of version names in which 2 comes before 10."""
    parts = re.split(r"([0-9]+)", version)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], version


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A model, a version or something else in a store that cannot be used, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} is left out: {self.reason}"

    def is_newer(self, model: str, version: str) -> bool:
        """Whether it stands in the place of a version of the model that is newer than this one."""
        found, _, name = self.name.partition("/")
        return found == model and version_order(name) > version_order(version)


@dataclass(frozen=True, slots=True)
class Folders:
    """The names of folders in a folder, and what was left out."""

    names: list[str]
    left_out: list[LeftOut]


def is_ignored(name: str) -> bool:
    """Tell whether nobody would take a file or folder of this name for a model."""
    return name.startswith(".") or name in _NO_MODELS


def local_folders(root: Path, within: str, most: int) -> Folders:
    """What lies in `root/within`; `most` bounds how much.

    Raises:
        StoreError: the folder has more entries, or cannot be listed.
    """
    found = Folders([], [])
    path = root / within
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number == most:
                    raise StoreError(f"{path} has more than {most} entries")
                _sort_in(found, root, within, entry)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise StoreError(f"cannot list {path}: {error.strerror}") from error
    return found


def _sort_in(found: Folders, root: Path, within: str, entry: "os.DirEntry[str]") -> None:
    name = f"{within}/{shown_name(entry.name)}" if within else shown_name(entry.name)
    if is_ignored(entry.name):
        return
    try:
        if entry.is_symlink():
            inside(root, Path(entry.path))
        if entry.is_dir():
            fault = "" if is_name(entry.name) else f"it is not a name, {RULE}"
        elif entry.is_file():
            return  # a record, a note
        else:
            fault = "it is neither a folder nor a file"
    except (OSError, StoreError) as error:
        fault = str(error)
    if fault:
        found.left_out.append(LeftOut(name, fault))
    else:
        found.names.append(entry.name)


def shown_name(name: str) -> str:
    """A name as it may be printed."""
    return name if is_name(name) else shown(name)


def inside(root: Path, path: Path) -> Path:
    """Where `path` really lies, links followed.

    Raises:
        StoreError: that is out of `root`, or a link cannot be followed.
        OSError: there is no such thing, or it cannot be looked at.
    """
    bound = root.resolve()
    for link in _links(root, path):
        real = _followed(link)
        if not real.is_relative_to(bound):
            raise StoreError(f"{link} is a symbolic link out of the store, to {real}")
    return path.resolve(strict=True)


def open_inside(root: Path, path: Path) -> BufferedReader:
    """Open a file where `inside` says that it lies; never one that was put in its place meanwhile.

    Raises:
        StoreError: as of `inside`; or a link was changed while it was followed.
        OSError: there is no such file, it cannot be read, or is not a regular one.
    """
    real = inside(root, path)
    file = open_regular(real, follow_link=False)
    try:
        opened = _OPENED.joinpath(str(file.fileno())).readlink()
    except OSError:  # a system without it
        opened = real
    if opened != real:
        file.close()
        raise StoreError(f"{path} was changed while it was being opened")
    return file


def _links(root: Path, path: Path) -> list[Path]:
    """The steps from the root to a path that are links, the first one first."""
    steps = [step for step in (path, *path.parents) if root in step.parents]
    return [step for step in reversed(steps) if step.is_symlink()]


def _followed(link: Path) -> Path:
    try:
        return Path(os.path.realpath(link, strict=True))
    except OSError as error:
        raise StoreError(f"{link} is a link that cannot be followed: {error.strerror}") from error
