"""What a worker says of the memory that is left where its models run."""

from .shared_state import SharedState

_EVERY_MS = 5000.0
# It is told again where it has changed by so much of what was told: each telling is a beat more.
_SHARE = 1 / 16


class FreeMemory:
    """Looks now and then, and ignores small changes. Owned by the keeper's thread."""

    def __init__(self, worker: SharedState) -> None:
        self._worker = worker
        self._is_cuda = worker.context.settings.device.startswith("cuda")
        self._next_ms = 0.0
        self._told = 0

    def fact(self) -> dict[str, str]:
        """For the announcement; empty where it is not known."""
        now_ms = self._worker.now_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + _EVERY_MS
            devices = self._worker.context.devices
            free = self._worker.free_device_bytes if self._is_cuda else devices.free_bytes()
            if abs(free - self._told) > self._told * _SHARE:
                self._told = free
        return {"free_bytes": str(self._told)} if self._told else {}
