"""What the device thread was given and has not done yet. Pure.

It takes loads and batches in the order in which they were sent, so what stands first is what it is
at, and the only thing whose time runs. A batch that runs between two parts of a load says so.
"""

from collections import deque

from .state import Lane


class DeviceQueue:
    """Loads, and at most one batch. `since_ms` is when the device thread began with the first."""

    def __init__(self) -> None:
        self.since_ms = 0.0
        self._jobs: deque[Lane | None] = deque()  # None is the batch

    @property
    def loading(self) -> Lane | None:
        """The lane that is being loaded right now."""
        return self._jobs[0] if self._jobs else None

    @property
    def has_load(self) -> bool:
        """Whether a lane is being loaded, or is about to be."""
        return any(lane is not None for lane in self._jobs)

    def add(self, job: Lane | None, now_ms: float) -> None:
        """A load was sent, or the batch."""
        if not self._jobs:
            self.since_ms = now_ms
        self._jobs.append(job)

    def begin_batch(self, now_ms: float) -> None:
        """The batch runs, and the load that was before it waits."""
        if None in self._jobs:
            self._jobs.remove(None)
            self._jobs.appendleft(None)
            self.since_ms = now_ms

    def end_load(self, number: int, now_ms: float) -> None:
        """The lane of this number is loaded, or refused."""
        self._end(
            [lane for lane in self._jobs if lane is not None and lane.number == number], now_ms
        )

    def end_batch(self, now_ms: float) -> None:
        """The batch has left the device."""
        self._end([None] if None in self._jobs else [], now_ms)

    def _end(self, jobs: "list[Lane] | list[None]", now_ms: float) -> None:
        for job in jobs:
            self._jobs.remove(job)
            self.since_ms = now_ms

    def clear(self) -> None:
        """The device process is lost."""
        self._jobs.clear()
