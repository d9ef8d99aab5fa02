"""What was measured of a version on this machine, kept for the next time that it is loaded.

    <folder>/measured/<digest>.json         {"version": …, "situation": …, "found": …}

The digest is made of version and situation, all that the figures depend on. What cannot be read, or
kept, is measured again: it costs a start some seconds, and nothing else.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from .. import __version__
from ..service.ownership import why_not_ours
from ..service.regular_files import read_regular
from ..wire.errors import StoreError
from .cache import default_cache, own_cache
from .manifest import Manifest
from .runtimes import RUNTIMES, code_sha256

_FOLDER = "measured"
_BYTES_MAX = 100_000
# Of the versions, machines and releases that this user has seen.
_FILES_MAX = 256


@dataclass(frozen=True, slots=True)
class Measurements:
    """Results about one version; none are found or kept about one that is not named.

    Attributes:
        folder: the cache; None is the default one.
        version: what tells the version, and the code that runs it, from all others.
    """

    folder: Path | None = None
    version: Mapping[str, Any] = field(default_factory=dict)

    def find(self, situation: Mapping[str, Any]) -> Any:
        """What was kept for the same version in the same situation; None where nothing was."""
        if not self.version:
            return None
        with suppress(StoreError):
            kept = _read(self._path(situation))
            return None if kept is None else kept.get("found")
        return None

    def all_found(self) -> list[tuple[Mapping[str, Any], Any]]:
        """What was kept of this version in any situation, with it, the newest first."""
        with suppress(StoreError, OSError):
            paths = list(self._folder().glob("*.json"))
            kept = [_read(path) for path in sorted(paths, key=_modified_ns, reverse=True)]
            return [
                (one["situation"], one.get("found"))
                for one in kept
                if one is not None
                and one.get("version") == self.version
                and isinstance(one.get("situation"), dict)
            ]
        return []

    def keep(self, situation: Mapping[str, Any], found: Any) -> None:
        """Keep what was found, if there is a place for it; what is oldest makes room."""
        if not self.version:
            return
        with suppress(StoreError, OSError):
            path = self._path(situation)
            scratch = path.with_name(f".{secrets.token_hex(8)}")
            try:
                kept = {"version": self.version, "situation": situation, "found": found}
                scratch.write_bytes(orjson.dumps(kept))
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
            _make_room(path.parent)

    def _path(self, situation: Mapping[str, Any]) -> Path:
        parts = {"version": self.version, "situation": situation}
        canonical = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        name = hashlib.sha256(canonical).hexdigest()[:32]
        return self._folder() / f"{name}.json"

    def _folder(self) -> Path:
        return own_cache((self.folder or default_cache()) / _FOLDER)


def measurements_of(manifest: Manifest, folder: Path | None) -> Measurements:
    """Those of a version, under the code of this release."""
    is_built_in = manifest.runtime in RUNTIMES
    built_in = {"code": code_sha256(manifest.runtime)} if is_built_in else {}
    version = {"lineage": manifest.lineage, "batchfleet": __version__, **built_in}
    return Measurements(folder, version)


def _read(path: Path) -> dict[str, Any] | None:
    """What a file of ours says; None where there is none, or not a whole one."""
    with suppress(OSError, ValueError):
        if path.exists() and not why_not_ours([path]):
            kept = orjson.loads(read_regular(path, _BYTES_MAX))
            return kept if isinstance(kept, dict) else None
    return None


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # another process made room
        return 0


def _make_room(folder: Path) -> None:
    """Remove the oldest files beyond `_FILES_MAX`; another process may be at it as well."""
    paths = sorted(folder.glob("*.json"), key=_modified_ns)
    for path in paths[: max(0, len(paths) - _FILES_MAX)]:
        path.unlink(missing_ok=True)
