"""Local copies of files from a remote store.

    <folder>/files/<sha256>                       content, fetched once for all versions
    <folder>/versions/<model>/<version>-<digest>  a version's files: hard links to the content

Several processes may fill one cache at once: content is written under a name of its own and then
renamed, and a folder is named after its manifest, so that all of them write the same into it.
"""

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..service.ownership import foreign_hand
from ..wire.errors import StoreError
from .files import FileEntry, is_intact, plain_path, write_durably
from .manifest import Manifest

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
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(
            f"there is no folder for a cache: {error.strerror}; name one with --cache"
        ) from error
    if why := foreign_hand([folder]):
        raise StoreError(f"no cache can lie there: {why}; name another folder with --cache")
    return folder


def find_cache(setting: str) -> Path | None:
    """The folder of the setting `cache`, or the default one, absolute.

    None where there is no default one here: whoever needs it is told by `default_cache`.
    """
    with suppress(StoreError, RuntimeError):
        return (Path(setting) if setting else default_cache()).absolute()
    return None


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
        try:
            version.mkdir(parents=True, exist_ok=True)
            for name, entry in manifest.files.items():
                _link(self._content(name, entry, download), plain_path(version, name))
        except OSError as error:
            raise StoreError(f"cannot write the cache {self._folder}: {error}") from error
        return version

    def _content(self, name: str, entry: FileEntry, download: Download) -> Path:
        path = self._folder / "files" / entry.sha256
        if is_intact(path, entry):
            return path
        scratch = path.with_name(f".{secrets.token_hex(8)}")
        try:
            write_durably(scratch, lambda target: download(name, target))
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
