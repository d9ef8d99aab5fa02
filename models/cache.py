"""Copies of files of stores that are elsewhere, or that others may write to.

    <folder>/files/<sha256>                       content, fetched once for all versions
    <folder>/versions/<model>/<version>-<digest>  a version's files: hard links to the content

What was checked is what is loaded: a file is hashed while it is copied, and nobody else can write
to the copy. Files of a local store that others may write to are copied as well.

Several processes may fill one cache at once: content is written under a name of its own and then
renamed, and a folder is named after its manifest, so that all of them write the same into it.
"""

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..service.ownership import why_not_ours
from ..wire.errors import StoreError
from .files import FileEntry, is_intact, plain_path, write_durably
from .manifest import Manifest

_PRIVATE = 0o700
_READ_ONLY = 0o400
_FILES = "files"

Download = Callable[[str, BinaryIO], None]
"""Writes the file of that name into the stream, or raises StoreError where it differs."""


def default_cache() -> Path:
    """Where caches lie unless a setting says otherwise; a local store needs none.

    `~/.cache/batchfleet`; for a user without a home that can be written to, a folder of his own
    among the temporary ones.

    Raises:
        StoreError: that folder is another's, or there is no place for one.
    """
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and no entry for this user
        return _temporary_cache()
    folder = home / ".cache" / "batchfleet"
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    usable = home.is_absolute() and os.access(nearest, os.W_OK | os.X_OK)
    return folder if usable else _temporary_cache()


def _temporary_cache() -> Path:
    try:
        folder = Path(tempfile.gettempdir()) / f"batchfleet-{os.geteuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=_PRIVATE)
    except OSError as error:
        raise StoreError(
            f"no folder can be used as cache: {error.strerror}; name one with --cache"
        ) from error
    return own_cache(folder)


def find_cache(setting: str) -> Path | None:
    """The folder of the setting `cache`, or the default one, absolute.

    None where there is no default one here: whoever needs it is told by `default_cache`.
    """
    with suppress(StoreError, RuntimeError):
        return (Path(setting) if setting else default_cache()).absolute()
    return None


def own_cache(folder: Path) -> Path:
    """Return a folder of a cache, made if it is not there, where nobody else can write to it.

    Whatever runs out of a cache, or is read out of it without a further look, was put there by us.

    Raises:
        StoreError: others may write to it, or to a folder on the way; or it cannot be made.
    """
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write the cache {folder}: {error.strerror}") from error
    if why := why_not_ours([folder]):
        raise StoreError(f"the cache cannot be there: {why}; choose another folder with --cache")
    return folder


class FileCache:
    """Owns `folder`; nothing else may write there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self, manifest: Manifest, digest: str, download: Download) -> Path:
        """Bring the files that are missing or damaged; return a folder with exactly those files.

        `digest` tells manifests of the same model and version in different stores apart.

        Raises:
            StoreError: a file could not be fetched as the manifest says, or the cache not written.
        """
        version = self._folder / "versions" / manifest.model / f"{manifest.version}-{digest}"
        for folder in (self._folder, self._folder / _FILES, version):
            own_cache(folder)
        try:
            for name, entry in manifest.files.items():
                _link(self._content(name, entry, download), plain_path(version, name))
        except OSError as error:
            raise StoreError(f"cannot write the cache {self._folder}: {error}") from error
        return version

    def _content(self, name: str, entry: FileEntry, download: Download) -> Path:
        return kept_copy(self._folder / _FILES / entry.sha256, entry, partial(download, name))


def kept_copy(path: Path, entry: FileEntry, write: Callable[[BinaryIO], None]) -> Path:
    """Return a copy in a folder of a cache; `write` makes it where it is not there as it should be.

    Raises:
        StoreError: of `write`.
        OSError: it cannot be written.
    """
    if path.exists() and not why_not_ours([path]) and is_intact(path, entry):
        return path
    scratch = path.with_name(f".{secrets.token_hex(8)}")
    try:
        write_durably(scratch, write)
        scratch.chmod(_READ_ONLY)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def _link(content: Path, path: Path) -> None:
    if path.exists() and path.samefile(content):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{secrets.token_hex(8)}")
    os.link(content, scratch)
    try:
        scratch.replace(path)
    finally:
        # Renaming onto another link of the same file succeeds and leaves both names behind.
        scratch.unlink(missing_ok=True)
