"""From a version with the runtime `python` to its class.

What runs is what was checked: a source file is read once, compared with its sha256 and compiled
from those very bytes, and a wheel is run from a copy that bears its digest as name. No byte code is
read from or written to the store.
"""

import hashlib
import importlib
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from ..service.regular_files import open_regular
from ..wire.errors import StoreError
from .cache import kept_copy, own_cache
from .code import CodeKind, ModelCode, code_files, plain_distribution
from .files import FileEntry, copy_checked, is_intact, silent
from .manifest import Manifest
from .model import Model
from .spawning import hand_to_children

_PACKAGE = "batchfleet_version_"
_WHEELS = "wheels"
_MODULE_ENDS = (".py", "/__init__.py", ".pyc", "/__init__.pyc")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlace:
    """Where a version's code is read.

    Attributes:
        folder: the version's files.
        cache: a folder of ours, for wheels.
        shown_as: the folder that a developer edits; files that are the same there are named in
            traces and to debuggers as lying there.
    """

    folder: Path
    cache: Path
    shown_as: Path | None = None


def load_class(manifest: Manifest, place: CodePlace) -> type[Model]:
    """Import the class that a manifest names. Whether it may run was asked before.

    Raises:
        StoreError: the code is not what the manifest says, or the class is not there.
        Exception: whatever the user's module raises while it is imported.
    """
    code = manifest.code
    if code is None:
        raise StoreError("the manifest has no code; use `batchfleet models publish FILE.py`")
    if code.kind is CodeKind.FILE:
        module = _module_of_file(manifest, code, place)
    elif code.kind is CodeKind.WHEEL:
        module = _module_of_wheel(manifest, code, place)
    else:
        module = _module_of_distribution(code)
    return _class_in(module, code)


def _class_in(module: ModuleType, code: ModelCode) -> type[Model]:
    found = getattr(module, code.class_name, None)
    if found is None:
        raise StoreError(f"{code.source} has no class {code.class_name!r}")
    if not isinstance(found, type) or not issubclass(found, Model):
        raise StoreError(f"{code.class_name} of {code.source} is not derived from batchfleet.Model")
    return found


# Source files of the version: one package, of a name that no other version has.


class MissingFileError(StoreError, ImportError):
    """A version's code imports a file that is not in the version.

    An `ImportError` too, so that code may ask for a file that need not be there; and no
    `ModuleNotFoundError`, in whose place `from . import name` would raise one without a hint.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionFinder(MetaPathFinder):
    """Finds the modules of one version among the files of its manifest, and nowhere else."""

    package: str
    files: Mapping[str, FileEntry]
    place: CodePlace = field(compare=False)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 (the signature of finders)
        target: ModuleType | None = None,  # noqa: ARG002 (as above)
    ) -> ModuleSpec | None:
        """The spec of `fullname` where it is one of this version's modules.

        Raises:
            MissingFileError: it should be one and is not.
        """
        if fullname == self.package:
            return ModuleSpec(fullname, None, is_package=True)
        parent, _, rest = fullname.partition(".")
        if parent != self.package:
            return None
        base = rest.replace(".", "/")
        for name, is_package in ((f"{base}.py", False), (f"{base}/__init__.py", True)):
            if name in self.files:
                loader = _CheckedSource(name, self.files[name], self.place)
                return spec_from_loader(fullname, loader, is_package=is_package)
        raise MissingFileError(
            f"it imports .{rest}, which is not a file of the version; add it with --file {base}.py"
        )


class _CheckedSource(SourceLoader):
    """Loads one module from bytes that have just been checked."""

    def __init__(self, name: str, entry: FileEntry, place: CodePlace) -> None:
        self._path = place.folder / name
        self._entry = entry
        shown = self._path if place.shown_as is None else place.shown_as / name
        self._shown = shown if is_intact(shown, entry) else self._path

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 (the signature of loaders)
        """The path that traces and debuggers name."""
        return str(self._shown)

    def get_data(self, path: str | bytes) -> bytes:  # noqa: ARG002 (as above)
        """The source, checked.

        Raises:
            StoreError: it differs from the manifest.
        """
        with open_regular(self._path) as file:
            raw = file.read(self._entry.size_bytes + 1)
        if FileEntry(hashlib.sha256(raw).hexdigest(), len(raw)) != self._entry:
            raise StoreError(f"{self._path.name} differs from its manifest")
        return raw


def _module_of_file(manifest: Manifest, code: ModelCode, place: CodePlace) -> ModuleType:
    if code.source not in manifest.files:
        raise StoreError(f"the version has no file {code.source}")
    digest = hashlib.sha256(f"{manifest.model}/{manifest.version}/{manifest.lineage}".encode())
    package = _PACKAGE + digest.hexdigest()[:12]
    files = {name: manifest.files[name] for name in code_files(manifest.files)}
    adopt(package, files, place)
    hand_to_children(package, adopt, (files, place))
    try:
        return importlib.import_module(f"{package}.{code.module}")
    except ModuleNotFoundError as error:
        raise StoreError(_missing(error, manifest, place)) from error


def adopt(package: str, files: Mapping[str, FileEntry], place: CodePlace) -> None:
    """Make a version's source files importable as one package, each checked when it is read."""
    _forget(package)
    sys.meta_path.append(_VersionFinder(package=package, files=files, place=place))


def _forget(package: str) -> None:
    """A version that is loaded again must not meet the modules of the first time."""
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not (isinstance(finder, _VersionFinder) and finder.package == package)
    ]


def _missing(error: ModuleNotFoundError, manifest: Manifest, place: CodePlace) -> str:
    top = (error.name or "a module").partition(".")[0]
    if f"{top}.py" in manifest.files or f"{top}/__init__.py" in manifest.files:
        return f"it imports {top!r}: write `from . import {top}`, a version's files are one package"
    for beside in (f"{top}.py", top):
        if place.shown_as is not None and (place.shown_as / beside).exists():
            return (
                f"it imports {top!r}, which lies beside it: add --file {beside} and write "
                f"`from . import {top}`, a version's files are one package"
            )
    return (
        f"it needs {top!r}, which this Python does not have: pip install it there, or publish the "
        "version with an environment (--requirements)"
    )


# Wheels of the version.


def _module_of_wheel(manifest: Manifest, code: ModelCode, place: CodePlace) -> ModuleType:
    entry = manifest.files.get(code.source)
    if entry is None:
        raise StoreError(f"the version has no file {code.source}")
    wheel = _kept_wheel(place.folder / code.source, entry, place.cache)
    top = code.module.partition(".")[0]
    loaded = sys.modules.get(top)
    if loaded is not None and not _is_inside(loaded, wheel):
        raise StoreError(
            f"this process has already loaded another package {top!r}; publish one of the two "
            "versions with an environment of its own"
        )
    _require_in_wheel(wheel, code)
    if str(wheel) not in sys.path:
        # In front: the version's own package counts, not one of the same name beside it.
        sys.path.insert(0, str(wheel))
    return importlib.import_module(code.module)


def _require_in_wheel(wheel: Path, code: ModelCode) -> None:
    """Go on where the module is the wheel's: who allowed the wheel allowed none that is beside it.

    Raises:
        StoreError: it is not, or the file is no wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile as error:
        raise StoreError(f"{code.source} is not a wheel: {error}") from error
    top, path = code.module.partition(".")[0], code.module.replace(".", "/")
    # A folder without `__init__.py` would be joined with, or give way to, others of its name.
    for one in (top, path):
        if not any(f"{one}{end}" in names for end in _MODULE_ENDS):
            raise StoreError(f"{code.source} has no package {one.replace('/', '.')!r}")


def _kept_wheel(source: Path, entry: FileEntry, cache: Path) -> Path:
    folder = own_cache(cache / _WHEELS / entry.sha256)

    def write(target: Any) -> None:
        with open_regular(source) as stream:
            copy_checked(source.name, stream, target, entry, silent)

    return kept_copy(folder / source.name, entry, write)


def _is_inside(module: ModuleType, wheel: Path) -> bool:
    return str(getattr(module, "__file__", "")).startswith(f"{wheel}/")


# Installed distributions.


def _module_of_distribution(code: ModelCode) -> ModuleType:
    name, wanted = code.distribution
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError as error:
        raise StoreError(f"it needs {code.source}: pip install '{code.source}'") from error
    if installed != wanted:
        raise StoreError(f"it needs {code.source}, and {installed} is installed")
    top = code.module.partition(".")[0]
    owners = map(plain_distribution, metadata.packages_distributions().get(top, ()))
    if plain_distribution(name) not in owners:
        raise StoreError(f"package {top!r} is not part of {name}")
    return importlib.import_module(code.module)
