"""The store of model versions, on any root that fsspec can open.

    <root>/<model>/<version>/manifest.json and the files that it names

A version is immutable and complete: files are written first and the manifest last, and a version
without a manifest does not exist. In a local folder (an NFS mount too) the whole version appears by
one rename. A remote store has no such step: two publishers of one remote version must not race.
"""

import hashlib
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec.core
from fsspec.implementations.local import LocalFileSystem

from ..wire.errors import StoreError
from ..wire.names import is_name, require_name
from .cache import FileCache, default_cache
from .files import (
    MANIFEST_NAME,
    FileEntry,
    Progress,
    copy_checked,
    describe_file,
    is_intact,
    plain_path,
    silent,
    write_durably,
)
from .manifest import MANIFEST_BYTES_MAX, Manifest
from .runtimes import code_sha256

ENTRIES_MAX = 10_000


def version_order(version: str) -> tuple[list[Any], str]:
    """Sort key of version names in which 2 comes before 10."""
    parts = re.split(r"([0-9]+)", version)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], version


class Store:
    """Model versions under one root: a folder's path or an fsspec URL. Keeps nothing in memory.

    Args:
        root: `models/`, `file:///…`, `s3://…`, `memory://…`.
        cache: where files of a remote root are copied to; `~/.cache/batchfleet` by default.

    Every method raises `StoreError` where the storage cannot be reached, and `CallerError` where a
    model or version is not a name.
    """

    def __init__(self, root: str, cache: Path | None = None) -> None:
        self.root = root
        try:
            self._files, path = fsspec.core.url_to_fs(root)
        except ImportError as error:
            raise StoreError(f"store {root} needs another package: {error}") from error
        except ValueError as error:
            raise StoreError(
                f"store {root} is neither a folder nor a known URL: {error}"
            ) from error
        self._path = path.rstrip("/")
        self._folder = Path(path) if isinstance(self._files, LocalFileSystem) else None
        self._cache = FileCache(cache or default_cache())

    def models(self) -> dict[str, list[str]]:
        """Model → its versions, oldest first; models without a version are left out."""
        self._files.invalidate_cache()
        found = {model: self._versions(model) for model in self._names(self._path)}
        return {model: versions for model, versions in sorted(found.items()) if versions}

    def newest(self, model: str) -> str:
        """The last version of a model in natural order.

        Raises:
            StoreError: the store has no version of it.
        """
        versions = self._versions(require_name("model", model))
        if not versions:
            raise StoreError(f"store {self.root} has no model {model!r}; it has: {self._known()}")
        return versions[-1]

    def manifest(self, model: str, version: str) -> Manifest:
        """The manifest of a version.

        Raises:
            StoreError: there is no such version, or its manifest is ill-formed or of another name.
        """
        raw = self._manifest_bytes(model, version)
        if raw is None:
            raise StoreError(
                f"store {self.root} has no version {model}/{version}; it has: {self._known()}"
            )
        return _read_manifest(raw, model, version)

    def fetch(self, model: str, version: str) -> Path:
        """A local folder with the version's files, each of them just checked.

        For a local root that is the version's own folder; treat it as read-only.

        Raises:
            StoreError: a file is missing, differs from its sha256, or is a symbolic link.
        """
        manifest = self.manifest(model, version)
        if self._folder is None:
            return self._fetch_remote(manifest)
        folder = self._folder / model / version
        for name, entry in manifest.files.items():
            if not is_intact(plain_path(folder, name), entry):
                raise StoreError(
                    f"{model}/{version}: file {name!r} is missing or differs from its manifest"
                )
        return folder

    def publish(
        self, draft: Manifest, sources: Mapping[str, Path], progress: Progress = silent
    ) -> Manifest:
        """Add a version: `sources` maps file names to local paths. Returns the complete manifest.

        Publishing what is there already changes nothing.

        Raises:
            StoreError: the draft is ill-formed, its runtime unknown, a source cannot be read, or
                the version exists with another content.
        """
        described = {name: describe_file(path) for name, path in sources.items()}
        filled = replace(draft, files=described, code_sha256=_code_sha256_of(draft))
        manifest = Manifest.from_json(filled.to_json())
        existing = self._manifest_bytes(manifest.model, manifest.version)
        if existing is not None:
            return _same_or_refuse(existing, manifest)
        if self._folder is None:
            self._publish_remote(manifest, sources, progress)
            return manifest
        return self._publish_local(self._folder / manifest.model, manifest, sources, progress)

    def version_folder(self, model: str, version: str) -> Path | None:
        """The version's own folder, where the root is a folder of this machine; else None."""
        return None if self._folder is None else self._folder / model / version

    def _publish_local(
        self, home: Path, manifest: Manifest, sources: Mapping[str, Path], progress: Progress
    ) -> Manifest:
        scratch = home / f".publish-{secrets.token_hex(8)}"
        target = home / manifest.version
        with _storage(f"cannot publish to {target}"):
            try:
                scratch.mkdir(parents=True)
                for name, entry in manifest.files.items():
                    _copy_file(sources[name], scratch / name, entry, progress)
                raw = manifest.to_json()
                write_durably(scratch / MANIFEST_NAME, lambda file: _write_all(file, raw))
                if _rename_new(scratch, target):
                    return manifest
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        existing = self._manifest_bytes(manifest.model, manifest.version)
        if existing is None:
            raise StoreError(f"{target} is in the way and holds no manifest; remove it")
        return _same_or_refuse(existing, manifest)

    def _publish_remote(
        self, manifest: Manifest, sources: Mapping[str, Path], progress: Progress
    ) -> None:
        base = f"{self._path}/{manifest.model}/{manifest.version}"
        with _storage(f"cannot publish to {self.root}"):
            for name, entry in manifest.files.items():
                path = f"{base}/{name}"
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                with sources[name].open("rb") as source, self._files.open(path, "wb") as target:
                    copy_checked(name, source, target, entry, progress)
            self._files.makedirs(base, exist_ok=True)
            self._files.pipe_file(f"{base}/{MANIFEST_NAME}", manifest.to_json())

    def _fetch_remote(self, manifest: Manifest) -> Path:
        base = f"{self._path}/{manifest.model}/{manifest.version}"

        def download(name: str, target: Any) -> None:
            what = f"cannot fetch {manifest.model}/{manifest.version} file {name!r}"
            with _storage(what), self._files.open(f"{base}/{name}", "rb") as source:
                copy_checked(name, source, target, manifest.files[name], silent)

        digest = hashlib.sha256(manifest.to_json()).hexdigest()[:16]
        return self._cache.fill(manifest, digest, download)

    def _manifest_bytes(self, model: str, version: str) -> bytes | None:
        """The manifest's bytes, never more than one over the limit; None where there is none."""
        require_name("model", model)
        require_name("version", version)
        if self._folder is not None:
            plain_path(self._folder / model / version, MANIFEST_NAME)
        path = f"{self._path}/{model}/{version}/{MANIFEST_NAME}"
        with _storage(f"cannot read {path}"):
            try:
                with self._files.open(path, "rb") as stream:
                    return bytes(stream.read(MANIFEST_BYTES_MAX + 1))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _versions(self, model: str) -> list[str]:
        with _storage(f"cannot list {model} in {self.root}"):
            base = f"{self._path}/{model}"
            found = [
                version
                for version in self._names(base)
                if self._files.isfile(f"{base}/{version}/{MANIFEST_NAME}")
            ]
        return sorted(found, key=version_order)

    def _names(self, path: str) -> list[str]:
        """Folders directly under `path` whose names are names of the contract."""
        with _storage(f"cannot list {path}"):
            try:
                entries = self._files.ls(path, detail=True)
            except FileNotFoundError:
                return []
        if len(entries) > ENTRIES_MAX:
            raise StoreError(f"{path} has over {ENTRIES_MAX} entries")
        names = (
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        )
        return [name for name in names if is_name(name)]

    def _known(self) -> str:
        known = [
            f"{model}/{version}" for model, all_of in self.models().items() for version in all_of
        ]
        return ", ".join(known[-20:]) or "nothing"


@contextmanager
def _storage(what: str) -> Iterator[None]:
    """Turn whatever a storage backend raises into a StoreError.

    Each fsspec backend raises errors of its own client library, with no root but Exception.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{what}: {error}") from error


def _read_manifest(raw: bytes, model: str, version: str) -> Manifest:
    try:
        manifest = Manifest.from_json(raw)
    except StoreError as error:
        raise StoreError(f"{model}/{version}: {error}") from error
    if (manifest.model, manifest.version) != (model, version):
        raise StoreError(
            f"the manifest in {model}/{version} is that of {manifest.model}/{manifest.version}"
        )
    return manifest


def _code_sha256_of(draft: Manifest) -> str:
    """Digest of the runtime's source; a user's source is among the version's files instead."""
    return code_sha256(draft.runtime) if draft.code is None else draft.code.sha256


def _same_or_refuse(existing: bytes, manifest: Manifest) -> Manifest:
    published = _read_manifest(existing, manifest.model, manifest.version)
    if published != manifest:
        raise StoreError(
            f"{manifest.model}/{manifest.version} is published with another content, and a version "
            "never changes; publish under a new version"
        )
    return published


def _copy_file(source: Path, target: Path, entry: FileEntry, progress: Progress) -> None:
    with source.open("rb") as stream:
        write_durably(target, lambda file: copy_checked(target.name, stream, file, entry, progress))


def _write_all(file: Any, raw: bytes) -> None:
    file.write(raw)


def _rename_new(source: Path, target: Path) -> bool:
    """Rename a folder unless one with content has the name already; tells whether it did."""
    try:
        source.rename(target)
    except OSError:
        if target.exists():
            return False
        raise
    return True
