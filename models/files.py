"""The files of a model version: which names are allowed, what a file holds, how it is copied.

Whoever may write to the store may try to make a worker read or write elsewhere, so a name is a
plain relative path of a narrow alphabet, a link is followed where it stays in the store alone, and
what is no regular file is not opened.
"""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..service.regular_files import open_regular
from ..wire.errors import StoreError
from ..wire.names import shown

MANIFEST_NAME = "manifest.json"
FILES_MAX = 4096
FILE_NAME_CHARACTERS_MAX = 512
CHUNK_BYTES = 1024 * 1024

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes done and the bytes in all."""


def silent(_name: str, _done_bytes: int, _total_bytes: int) -> None:
    """The progress report of a caller who wants none."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a manifest says of one file."""

    sha256: str
    size_bytes: int


def is_file_name(name: str) -> bool:
    """Tell whether `name` may stand in a manifest: a plain relative path, and not the manifest."""
    parts = name.split("/")
    plain = all(_PART.fullmatch(part) and ".." not in part for part in parts)
    return plain and name != MANIFEST_NAME and len(name) <= FILE_NAME_CHARACTERS_MAX


def is_sha256(text: str) -> bool:
    """Tell whether `text` is a sha256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def describe_file(path: Path) -> FileEntry:
    """Size and sha256 of a file.

    Raises:
        StoreError: it cannot be read, or is no regular file.
    """
    try:
        with open_regular(path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return FileEntry(digest, stream.tell())
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def files_under(folder: Path) -> dict[str, Path]:
    """The files below a folder by their paths in it, without byte code; links are followed.

    Raises:
        StoreError: something there is neither a file nor a folder, a link leads nowhere or back
            to where it lies, there are over `FILES_MAX` files, or a folder cannot be listed.
    """
    found: dict[str, Path] = {}
    waiting: list[tuple[Path, str, tuple[str, ...]]] = [(folder, "", (os.path.realpath(folder),))]
    while waiting:
        here, prefix, way = waiting.pop()
        for path in _listed(here):
            name = f"{prefix}{path.name}"
            if path.is_dir():
                real = os.path.realpath(path)
                if real in way:
                    raise StoreError(f"{path} is a link to a folder that contains it")
                waiting.append((path, f"{name}/", (*way, real)))
            elif path.is_file():
                found[name] = path
            else:
                raise StoreError(f"{path} is {_kind_of_file(path)}")
        if len(found) > FILES_MAX:
            raise StoreError(f"{folder} has more than {FILES_MAX} files")
    return dict(sorted(found.items()))


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.name != "__pycache__"]
    except OSError as error:
        raise StoreError(f"cannot list {folder}: {error.strerror}") from error


def _kind_of_file(path: Path) -> str:
    if path.is_symlink():
        return f"a broken link to {path.readlink()}"
    return "neither a file nor a folder"


def plain_path(folder: Path, name: str) -> Path:
    """The path of file `name` under `folder`, which is ours alone, so that no link belongs there.

    Raises:
        StoreError: the name is not allowed, or a step below `folder` is a symbolic link.
    """
    path = folder
    for part in checked_name(name).split("/"):
        path = path / part
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link; only plain files are allowed")
    return path


def checked_name(name: str) -> str:
    """Return `name` where it is that of a file of a version.

    Raises:
        StoreError: it is not.
    """
    if name != MANIFEST_NAME and not is_file_name(name):
        raise StoreError(f"{shown(name)} is not a file name: use a plain relative path")
    return name


def is_intact(path: Path, entry: FileEntry) -> bool:
    """Tell whether `path` is a regular file of exactly that size and sha256."""
    if not path.is_file() or path.stat().st_size != entry.size_bytes:
        return False
    return describe_file(path) == entry


def copy_checked(
    name: str, source: BinaryIO, target: BinaryIO, entry: FileEntry, progress: Progress
) -> None:
    """Copy a stream, checking it on the way; never writes more than `entry` promises.

    Raises:
        StoreError: the source is not what `entry` says; the target is then of no use.
    """
    digest = hashlib.sha256()
    done = 0
    progress(name, 0, entry.size_bytes)
    while chunk := source.read(min(CHUNK_BYTES, entry.size_bytes - done + 1)):
        done += len(chunk)
        if done > entry.size_bytes:
            break
        digest.update(chunk)
        target.write(chunk)
        progress(name, done, entry.size_bytes)
    if FileEntry(digest.hexdigest(), done) != entry:
        raise StoreError(f"file {name!r} differs from its manifest in size or sha256")


def write_durably(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a new file so that it is on disk before anything refers to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as target:
        write(target)
        target.flush()
        os.fsync(target.fileno())


def write_all(file: BinaryIO, raw: bytes) -> None:
    """Write bytes that are all here."""
    file.write(raw)


def copy_file(source: Path, target: Path, entry: FileEntry, progress: Progress) -> None:
    """Copy a regular file to a new one on disk, checking it on the way.

    Raises:
        StoreError: the source is not what `entry` says.
        OSError: one of them cannot be read or written.
    """
    with open_regular(source) as stream:
        write_durably(target, lambda file: copy_checked(target.name, stream, file, entry, progress))


def rename_new(source: Path, target: Path) -> bool:
    """Rename a folder unless one with content has the name already; tells whether it did."""
    try:
        source.rename(target)
    except OSError:
        if target.exists():
            return False
        raise
    return True
