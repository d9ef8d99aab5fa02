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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import fsspec.core
from fsspec.implementations.local import LocalFileSystem

from ..service.addresses import masked_text, masked_url
from ..service.ownership import why_not_ours
from ..service.regular_files import open_regular, read_at_most
from ..wire.errors import StoreError
from ..wire.names import RULE, is_name, require_name
from ..wire.texts import kind_name
from .cache import FileCache, default_cache
from .files import (
    MANIFEST_NAME,
    Progress,
    checked_name,
    copy_checked,
    copy_file,
    describe_file,
    is_intact,
    rename_new,
    silent,
    write_all,
    write_durably,
)
from .listing import (
    Folders,
    LeftOut,
    inside,
    is_ignored,
    local_folders,
    open_inside,
    shown_name,
    version_order,
)
from .manifest import MANIFEST_BYTES_MAX, Manifest
from .runtimes import code_sha256

ENTRIES_MAX = 10_000
_KNOWN_MAX = 20
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_FAULTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Survey:
    """Model → its versions that can be used, the oldest first; and what else there is."""

    models: dict[str, list[str]]
    left_out: list[LeftOut]


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version of a model that can be used, and the newer ones that cannot."""

    manifest: Manifest
    left_out: list[LeftOut]


class Store:
    """Model versions under one root: a folder's path or an fsspec URL. Keeps nothing in memory.

    Args:
        root: `models/`, `file:///…`, `s3://…`, `memory://…`.
        cache: where files of a remote root are copied to; `~/.cache/batchfleet` by default.

    Every method raises `StoreError` where the storage cannot be reached, and `CallerError` where a
    model or version is not a name.
    """

    def __init__(self, root: str, cache: Path | None = None) -> None:
        self.root = masked_url(root)  # only ever shown
        self._files, path = _open_root(root)
        self._path = path.rstrip("/")
        self._folder = Path(path) if isinstance(self._files, LocalFileSystem) else None
        self._cache = cache

    def survey(self) -> Survey:
        """All that the store holds; each manifest is read.

        What is wrong with one version, or with one model's folder, concerns no other.
        """
        self._files.invalidate_cache()
        root = self._folders("")
        survey = Survey({}, list(root.left_out))
        for model in sorted(root.names):
            try:
                folders = self._versions(model)
            except StoreError as error:
                survey.left_out.append(LeftOut(model, str(error)))
                continue
            survey.left_out.extend(folders.left_out)
            usable = [v for v in folders.names if not self._is_left_out(model, v, survey.left_out)]
            if usable:
                survey.models[model] = usable
        return survey

    def models(self) -> dict[str, list[str]]:
        """Model → its versions that can be used, oldest first; models without one are left out."""
        return self.survey().models

    def newest(self, model: str) -> Newest:
        """The last version of a model, in natural order, that can be used.

        Raises:
            StoreError: the store has none.
        """
        folders = self._versions(require_name("model", model))
        left_out: list[LeftOut] = []
        for version in reversed(folders.names):
            if not self._is_left_out(model, version, left_out):
                newer = [one for one in folders.left_out if one.is_newer(model, version)]
                return Newest(self.manifest(model, version), [*left_out, *newer])
        faults = [*left_out, *folders.left_out]
        if faults:
            reasons = "; ".join(map(str, faults[:_FAULTS_MAX]))
            raise StoreError(f"store {self.root} has no usable version of {model}: {reasons}")
        raise StoreError(f"store {self.root} has no model {model!r}; it has: {self._known()}")

    def versions(self, model: str) -> list[str]:
        """The versions of a model that have a manifest, good or bad, in natural order."""
        return self._versions(require_name("model", model)).names

    def has(self, model: str, version: str) -> bool:
        """Whether there is a manifest for this version, good or bad."""
        return self._manifest_bytes(model, version) is not None

    def _is_left_out(self, model: str, version: str, left_out: list[LeftOut]) -> bool:
        try:
            self.manifest(model, version)
        except StoreError as error:
            name = f"{model}/{version}"
            left_out.append(LeftOut(name, str(error).removeprefix(f"{name}: ")))
            return True
        return False

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
        """The files of a version, as of `fetch_files`.

        Raises:
            StoreError: as of `manifest` and `fetch_files`.
        """
        return self.fetch_files(self.manifest(model, version))

    def fetch_files(self, manifest: Manifest) -> Path:
        """A local folder with the files of the version of this manifest; treat it as read-only.

        Each was just checked, and stays what was checked: the folder is the version's own one in a
        local store where nobody else can write to anything of it, else one of copies in the cache.

        Raises:
            StoreError: a file is missing, differs from its sha256, or is a link out of the store.
        """
        if self._folder is None:
            return self._fetch_copies(manifest, self._remote_file)
        folder = self._folder / manifest.model / manifest.version
        if why_not_ours(folder / checked_name(name) for name in (MANIFEST_NAME, *manifest.files)):
            return self._fetch_copies(manifest, self._local_file)
        for name, entry in manifest.files.items():
            path = self._place(self._folder, folder / checked_name(name))
            if path is None or not is_intact(path, entry):
                raise StoreError(f"{_name_of(manifest, name)} is missing or differs from it")
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

    def why_not_ours(self, model: str = "", version: str = "") -> str:
        """Why others may write to the store, or to a version's manifest; empty where they cannot.

        Nothing is said of a store that is not a folder of this machine, or is not there.
        """
        if self._folder is None or not self._folder.exists():
            return ""
        within = (model, version, MANIFEST_NAME) if model else ()
        return why_not_ours([self._folder, self._folder.joinpath(*within)])

    @property
    def place(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """The file system, and the path of the root in it."""
        return self._files, self._path

    def version_folder(self, model: str, version: str) -> Path | None:
        """The version's own folder, where the root is a folder of this machine; else None."""
        return None if self._folder is None else self._folder / model / version

    def _publish_local(
        self, home: Path, manifest: Manifest, sources: Mapping[str, Path], progress: Progress
    ) -> Manifest:
        assert self._folder is not None
        self._place(self._folder, home)
        scratch = home / f".publish-{secrets.token_hex(8)}"
        target = home / manifest.version
        with storage(f"cannot publish to {target}"):
            try:
                scratch.mkdir(parents=True)
                for name, entry in manifest.files.items():
                    copy_file(sources[name], scratch / name, entry, progress)
                raw = manifest.to_json()
                write_durably(scratch / MANIFEST_NAME, lambda file: write_all(file, raw))
                if rename_new(scratch, target):
                    return manifest
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        existing = self._manifest_bytes(manifest.model, manifest.version)
        if existing is None:
            raise StoreError(f"{target} exists and has no manifest; delete it")
        return _same_or_refuse(existing, manifest)

    def _publish_remote(
        self, manifest: Manifest, sources: Mapping[str, Path], progress: Progress
    ) -> None:
        base = f"{self._path}/{manifest.model}/{manifest.version}"
        with storage(f"cannot publish to {self.root}"):
            for name, entry in manifest.files.items():
                path = f"{base}/{name}"
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                with open_regular(sources[name]) as source, self._files.open(path, "wb") as target:
                    copy_checked(name, source, target, entry, progress)
            self._files.makedirs(base, exist_ok=True)
            self._files.pipe_file(f"{base}/{MANIFEST_NAME}", manifest.to_json())

    def _fetch_copies(
        self, manifest: Manifest, open_file: Callable[[Manifest, str], BinaryIO]
    ) -> Path:
        def download(name: str, target: Any) -> None:
            what = f"cannot fetch {manifest.model}/{manifest.version} file {name!r}"
            with storage(what), open_file(manifest, name) as source:
                copy_checked(name, source, target, manifest.files[name], silent)

        digest = hashlib.sha256(manifest.to_json()).hexdigest()[:16]
        return FileCache(self._cache or default_cache()).fill(manifest, digest, download)

    def _remote_file(self, manifest: Manifest, name: str) -> Any:
        path = f"{self._path}/{manifest.model}/{manifest.version}/{name}"
        return self._files.open(path, "rb")

    def _local_file(self, manifest: Manifest, name: str) -> Any:
        assert self._folder is not None
        path = self._folder / manifest.model / manifest.version / checked_name(name)
        try:
            return open_inside(self._folder, path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"{_name_of(manifest, name)} is missing") from error

    def _manifest_bytes(self, model: str, version: str) -> bytes | None:
        """The manifest's bytes, never more than one over the limit; None where there is none."""
        require_name("model", model)
        require_name("version", version)
        if self._folder is not None:
            return self._local_manifest(self._folder, model, version)
        path = f"{self._path}/{model}/{version}/{MANIFEST_NAME}"
        with storage(f"cannot read {path}"):
            try:
                with self._files.open(path, "rb") as stream:
                    return bytes(stream.read(MANIFEST_BYTES_MAX + 1))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _local_manifest(self, root: Path, model: str, version: str) -> bytes | None:
        path = root / model / version / MANIFEST_NAME
        try:
            with open_inside(root, path) as file:
                return read_at_most(file, MANIFEST_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read its manifest {path}: {error.strerror}") from error

    @staticmethod
    def _place(root: Path, path: Path) -> Path | None:
        """Where a path below the root of a local store lies, links followed; None: nowhere.

        Raises:
            StoreError: out of the store, or it cannot be looked at.
        """
        try:
            return inside(root, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error

    def _versions(self, model: str) -> Folders:
        """Versions of a model in their order, usable or not; and what cannot be one."""
        folders = self._folders(model)
        found = Folders([], folders.left_out)
        for version in folders.names:
            if self._may_have_manifest(model, version):
                found.names.append(version)
            elif self._folder is not None:  # elsewhere it may be on its way: the manifest is last
                found.left_out.append(LeftOut(f"{model}/{version}", f"it has no {MANIFEST_NAME}"))
        found.names.sort(key=version_order)
        return found

    def _may_have_manifest(self, model: str, version: str) -> bool:
        if self._folder is not None:
            try:
                (self._folder / model / version / MANIFEST_NAME).lstat()
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError:
                return True  # so that it is left out with its reason
            return True
        with storage(f"cannot list {model} in {self.root}"):
            found: bool = self._files.isfile(f"{self._path}/{model}/{version}/{MANIFEST_NAME}")
        return found

    def _folders(self, within: str) -> Folders:
        """Folders of the root, or of a model, whose names are names of the contract."""
        if self._folder is not None:
            return local_folders(self._folder, within, ENTRIES_MAX)
        path = f"{self._path}/{within}" if within else self._path
        with storage(f"cannot list {path}"):
            try:
                entries = self._files.ls(path, detail=True)
            except FileNotFoundError:
                return Folders([], [])
        if len(entries) > ENTRIES_MAX:
            raise StoreError(f"{path} has more than {ENTRIES_MAX} entries")
        names = [
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        ]
        odd = [name for name in names if not is_name(name) and not is_ignored(name)]
        prefix = f"{within}/" if within else ""
        left_out = [LeftOut(prefix + shown_name(one), f"it is not a name, {RULE}") for one in odd]
        return Folders([name for name in names if is_name(name)], left_out)

    def _known(self) -> str:
        known = [
            f"{model}/{version}"
            for model in sorted(self._folders("").names)
            for version in self._versions(model).names
        ]
        return ", ".join(known[-_KNOWN_MAX:]) or "nothing"


def _open_root(root: str) -> tuple[fsspec.AbstractFileSystem, str]:
    shown = masked_url(root)
    try:
        if not _URL.match(root):  # a path, in which `::` and `?` mean nothing
            return LocalFileSystem(), str(Path.cwd() / Path(root).expanduser())
        with storage(f"store {shown} cannot be opened"):
            files, path = fsspec.core.url_to_fs(root)
    except StoreError as error:
        # What the library says of a URL may quote its password, in pieces too.
        raise (error if shown == root else StoreError(f"store {shown} cannot be opened")) from None
    except RuntimeError as error:
        raise StoreError(f"store {shown} cannot be found: {error}") from error
    return files, str(path)


@contextmanager
def storage(what: str) -> Iterator[None]:
    """Turn whatever a storage backend raises into a StoreError.

    Each fsspec backend raises errors of its own client library, with no root but Exception.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{what}: {masked_text(str(error)) or kind_name(error)}") from error


def _name_of(manifest: Manifest, name: str) -> str:
    return f"{manifest.model}/{manifest.version}: file {name!r} of its manifest"


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
            f"{manifest.model}/{manifest.version} was already published with other content, and a "
            "version never changes; publish under a new version"
        )
    return published
