"""Keys, each with a value of one type, that expire by the clock. Guarded by its server's lock."""

from dataclasses import dataclass
from typing import Any, TypeVar

from ...broker.errors import refused
from ...service.clock import Clock

V = TypeVar("V")

_SWEEP_KEYS_MIN = 1024


class SortedSet(dict[bytes, float]):
    """Member → score."""

    def ranked(self) -> list[bytes]:
        """Members by score, those of one score by name."""
        return sorted(self, key=lambda member: (self[member], member))


class Hash(dict[bytes, bytes]):
    """Field → value."""


class Text(bytes):
    """The value of a string key."""


class Status(bytes):
    """An answer that is no text of a key: `OK`."""


@dataclass(slots=True)
class _Slot:
    value: Any
    expires_ms: float | None = None


class Database:
    """All keys, and the messages that a command has published so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[bytes, _Slot] = {}
        self._sweep_above = _SWEEP_KEYS_MIN
        self.outbox: list[tuple[bytes, bytes]] = []

    def now_ms(self) -> int:
        """The server's clock, whole milliseconds since 1970."""
        return int(self._clock.wall_ms())

    def now_microseconds(self) -> int:
        """The server's clock, whole microseconds since 1970."""
        return int(self._clock.wall_ms() * 1000)

    def _slot(self, key: bytes) -> _Slot | None:
        slot = self._slots.get(key)
        if slot is None or slot.expires_ms is None or self.now_ms() < slot.expires_ms:
            return slot
        del self._slots[key]
        return None

    def find(self, key: bytes, kind: type[V]) -> V | None:
        """The value of a key; None where there is none.

        Raises:
            RefusedError: `WRONGTYPE`, it is of another type.
        """
        slot = self._slot(key)
        if slot is None:
            return None
        if type(slot.value) is not kind:
            raise refused("WRONGTYPE Operation against a key holding the wrong kind of value")
        return slot.value

    def find_or_make(self, key: bytes, kind: type[V]) -> V:
        """The value of a key; a new empty one where there is none.

        Raises:
            RefusedError: `WRONGTYPE`.
        """
        found = self.find(key, kind)
        if found is None:
            found = kind()
            self.put(key, found)
        return found

    def put(self, key: bytes, value: Any, expires_ms: float | None = None) -> None:
        """Set a key, whatever it was before."""
        self._slots[key] = _Slot(value, expires_ms)
        if len(self._slots) > self._sweep_above:
            for each in list(self._slots):
                self._slot(each)
            self._sweep_above = max(_SWEEP_KEYS_MIN, 2 * len(self._slots))

    def exists(self, key: bytes) -> bool:
        """Whether there is such a key."""
        return self._slot(key) is not None

    def remove(self, key: bytes) -> bool:
        """Remove a key; whether there was one."""
        existed = self.exists(key)
        self._slots.pop(key, None)
        return existed

    def remove_if_empty(self, key: bytes) -> None:
        """Remove a key whose last element is gone; streams are not for this."""
        slot = self._slots.get(key)
        if slot is not None and not slot.value:
            del self._slots[key]

    def expire_at(self, key: bytes, expires_ms: float) -> bool:
        """Let a key end at a moment; whether there is such a key."""
        slot = self._slot(key)
        if slot is not None:
            slot.expires_ms = expires_ms
        return slot is not None

    def persist(self, key: bytes) -> bool:
        """Let a key end no more; whether it would have."""
        slot = self._slot(key)
        if slot is None or slot.expires_ms is None:
            return False
        slot.expires_ms = None
        return True

    def expires_ms(self, key: bytes) -> float | None:
        """When a key ends; None where it does not, or is not there."""
        slot = self._slot(key)
        return None if slot is None else slot.expires_ms
