"""What was measured of a version on this machine, kept for the next time that it is loaded.

    <folder>/measured/<digest>.json

The digest is made of all that the figures depend on. What cannot be read, or kept, is measured
again: it costs a start some seconds, and nothing else.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ..service.ownership import why_not_ours
from ..service.regular_files import read_regular
from ..wire.errors import StoreError
from .cache import default_cache, own_cache

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
        with suppress(StoreError, OSError, ValueError):
            path = self._path(situation)
            if path.exists() and not why_not_ours([path]):
                return orjson.loads(read_regular(path, _BYTES_MAX))
        return None

    def keep(self, situation: Mapping[str, Any], found: Any) -> None:
        """Keep what was found, if there is a place for it; what is oldest makes room."""
        if not self.version:
            return
        with suppress(StoreError, OSError):
            path = self._path(situation)
            scratch = path.with_name(f".{secrets.token_hex(8)}")
            try:
                scratch.write_bytes(orjson.dumps(found))
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
            _make_room(path.parent)

    def _path(self, situation: Mapping[str, Any]) -> Path:
        parts = {"version": self.version, "situation": situation}
        canonical = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        name = hashlib.sha256(canonical).hexdigest()[:32]
        return own_cache((self.folder or default_cache()) / _FOLDER) / f"{name}.json"


def _make_room(folder: Path) -> None:
    """Remove the oldest files beyond `_FILES_MAX`; another process may be at it as well."""
    dated = []
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):
            dated.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(dated)[: max(0, len(dated) - _FILES_MAX)]:
        path.unlink(missing_ok=True)
