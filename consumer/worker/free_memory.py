"""What a worker says of the memory that is left where its models compute."""

from .shared_state import SharedState

# It is told again where it has changed by so much of what was told: each telling is a beat more.
_SHARE = 1 / 16


class FreeMemory:
    """Ignores small changes. Owned by the keeper's thread."""

    def __init__(self, worker: SharedState) -> None:
        self._worker = worker
        self._told = 0

    def fact(self) -> dict[str, str]:
        """For the announcement; empty where no device process has said anything yet."""
        free = self._worker.free_bytes
        if abs(free - self._told) > self._told * _SHARE:
            self._told = free
        return {"free_bytes": str(self._told)} if self._told else {}
