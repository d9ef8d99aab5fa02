"""Canaries: the version that a share of the requests that name none goes to, and who loads it.

The fields `canary` and `workers:<version>` of a deploy record, read and decided on. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from .errors import SettingsError
from .names import is_name, shown
from .numbers import Range, shown_value
from .reading import as_map, from_json

WEIGHT = Range(0, 100, whole=False)
_HASH_BYTES = 8
_HASHES = 1 << (8 * _HASH_BYTES)
_SALT_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class Canary:
    """A version that gets `weight` percent of the requests that name none.

    The hash of an id, salted, decides: an id that goes to the canary at some weight goes there at
    every higher one. A new salt chooses others.
    """

    version: str
    weight: float = 0.0
    salt: str = ""

    def takes(self, request_id: str) -> bool:
        """Whether the request with this id is one of its share."""
        if self.weight <= 0 or self.weight >= WEIGHT.highest:
            return self.weight > 0
        digest = blake2b((self.salt + request_id).encode(), digest_size=_HASH_BYTES).digest()
        return int.from_bytes(digest) < self.weight / WEIGHT.highest * _HASHES

    def to_wire(self) -> bytes:
        """JSON, the value of the field `canary`."""
        return orjson.dumps({"version": self.version, "weight": self.weight, "salt": self.salt})

    @staticmethod
    def from_wire(raw: bytes) -> "Canary":
        """Read the field `canary`.

        Raises:
            SettingsError: it is none, or its weight is out of its range.
        """
        wire = as_map("canary", from_json("canary", raw))
        version, weight, salt = wire.get("version"), wire.get("weight"), wire.get("salt", "")
        if not isinstance(version, str) or not is_name(version):
            raise SettingsError(f"version of the canary is {shown_value(version)}, not a name")
        if WEIGHT.fault(weight):
            raise SettingsError(
                f"weight of the canary is {shown_value(weight)}; it must be {WEIGHT.words}"
            )
        if not isinstance(salt, str) or len(salt) > _SALT_BYTES_MAX:
            raise SettingsError(f"salt of the canary is {shown_value(salt)}, not a short text")
        return Canary(version, WEIGHT.plain(weight), salt)


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """Which workers load a version: those `named`, or all but those."""

    named: frozenset[str]
    excludes: bool = False

    def includes(self, worker: str) -> bool:
        """Whether this worker is one of them."""
        return (worker in self.named) is not self.excludes

    def to_wire(self) -> bytes:
        """JSON, the value of a field `workers:<version>`."""
        return orjson.dumps({"except" if self.excludes else "only": sorted(self.named)})

    @staticmethod
    def from_wire(field: str, raw: bytes) -> "WorkerChoice":
        """Read the field of this name.

        Raises:
            SettingsError: it is no choice of workers.
        """
        wire = as_map(field, from_json(field, raw))
        excludes = "except" in wire
        listed = wire.get("except" if excludes else "only")
        if "except" in wire and "only" in wire:
            raise SettingsError(f"{field} has both 'only' and 'except'")
        if not isinstance(listed, list) or not all(map(_is_worker, listed)):
            raise SettingsError(
                f"{field} is {shown_value(listed)}; it must list workers by 'only' or 'except'"
            )
        return WorkerChoice(frozenset(listed), excludes)


def _is_worker(name: Any) -> bool:
    return isinstance(name, str) and is_name(name)


def read_canary(raw: Mapping[str, bytes], offered: Mapping[str, Any]) -> Canary | None:
    """The canary of a deploy hash; None where there is none.

    Raises:
        SettingsError: it is ill-formed, or its version is not one of those offered.
    """
    if "canary" not in raw:
        return None
    canary = Canary.from_wire(raw["canary"])
    if canary.version not in offered:
        raise SettingsError(f"canary is {shown(canary.version)}, which has no record")
    return canary
