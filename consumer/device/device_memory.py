"""Memory that models need, of the host or of a CUDA device; and whether there is enough.

torch is asked only where a model has imported it; this module must not bring it in.
"""

import sys
from typing import Any

from ...service.clock import Clock
from ...service.memory import free_host_bytes
from ...wire.errors import StoreError
from ..link.protocol import Load, Memory
from .host import resident_bytes

MEMORY_EVERY_MS = 1000
_MEBIBYTE = 1 << 20


def held_bytes(device: str) -> int:
    """What this process holds of the host's memory, on CUDA of the device's."""
    if not device.startswith("cuda"):
        return resident_bytes()
    cuda = _cuda()
    return 0 if cuda is None or not cuda.is_initialized() else int(cuda.memory_reserved(device))


def free_device_bytes(device: str) -> int:
    """What a CUDA device has left; 0 where it is none, or not in use here."""
    cuda = _cuda() if device.startswith("cuda") else None
    if cuda is None or not cuda.is_initialized():
        return 0
    free, _ = cuda.mem_get_info(device)
    return int(free)


def _cuda() -> Any:
    return getattr(sys.modules.get("torch"), "cuda", None)


def _room(device: str) -> int | None:
    """What is left for a version; None where it is not known: its code uses CUDA without torch."""
    if not device.startswith("cuda"):
        return free_host_bytes()
    cuda = _cuda()
    return None if cuda is None else int(cuda.mem_get_info(device)[0])


def require_room(load: Load, needed_bytes: int) -> None:
    """Go on where a version can be loaded beside what serves; a first load is tried in any case.

    Raises:
        StoreError: it needs more than there is, and could end the others.
    """
    if not load.beside:
        return
    free_bytes = _room(load.device)
    if free_bytes is not None and needed_bytes > free_bytes:
        raise StoreError(
            f"not enough memory beside {load.beside}: it needs {needed_bytes // _MEBIBYTE} MiB, "
            f"and {free_bytes // _MEBIBYTE} MiB are free"
        )


class MemoryReport:
    """What a device process says of its memory, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = clock.monotonic_ms() + MEMORY_EVERY_MS
        self._sent = Memory(0, 0)
        # Of the device thread, which asks the device after loads: others must not while it loads.
        self._device = ""
        self._free_bytes = 0

    def note_load(self, device: str) -> None:
        """A version was loaded on a device."""
        self._device = device
        self.note_unload()

    def note_unload(self) -> None:
        """One is gone."""
        self._free_bytes = free_device_bytes(self._device)

    def is_due(self) -> bool:
        """Whether to look; once a second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + MEMORY_EVERY_MS
        return True

    def news(self) -> list[Memory]:
        """What there is to say; nothing where nothing has changed by much."""
        now = Memory(resident_bytes(), self._free_bytes)
        if all(abs(a - b) <= _MEBIBYTE for a, b in zip(now, self._sent, strict=True)):
            return []
        self._sent = now
        return [now]
