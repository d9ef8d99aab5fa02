"""Suspects: requests that were inside a device process when it was lost.

They run again with nothing else in the process, group after group, so that what is no culprit comes
through and the culprit is known by being alone. Owned by `core.py`, under its lock.
"""

from collections import deque

from .state import HeldRequest


class Suspects:
    """Groups that wait for the device process to be empty, and the one that is inside."""

    def __init__(self) -> None:
        self._groups: deque[list[HeldRequest]] = deque()
        self._open: list[HeldRequest] = []  # the last group, while it may still grow
        self._inside: list[HeldRequest] = []
        self._is_alone = False

    def __bool__(self) -> bool:
        return bool(self._groups or self._inside)

    @property
    def is_inside(self) -> bool:
        """Whether a group is in the device process."""
        return bool(self._inside)

    @property
    def is_alone(self) -> bool:
        """Whether a single request is in the device process, and was from the beginning."""
        return self._is_alone and self.is_inside

    def add_alone(self, held: HeldRequest) -> None:
        """A request that has to run alone."""
        self._groups.append([held])
        self._open = []

    def add_to_group(self, held: HeldRequest) -> None:
        """A request that may run with others of its kind: what a lost worker had inside.

        A worker is ended from outside far more often than by a request. Where it was one after all,
        this device process is lost with it, and each of them runs alone.
        """
        if not self._open or self._open[-1].lane is not held.lane:
            self._open = []
            self._groups.append(self._open)
        self._open.append(held)

    def admit(self) -> list[HeldRequest]:
        """The group that goes into the device process now; all are of one lane."""
        self._inside = self._groups.popleft()
        self._is_alone = len(self._inside) == 1
        self._open = []
        return list(self._inside)

    def clear_blame(self) -> None:
        """What was sent last did not arrive: nobody inside is known to be a culprit."""
        self._is_alone = False

    def lose(self) -> HeldRequest | None:
        """The device process is lost: the culprit, if one was alone inside."""
        culprit = self._inside[0] if self.is_alone else None
        self._inside = []
        return culprit

    def has(self, held: HeldRequest) -> bool:
        """Whether a request is still to run apart, or runs so now."""
        return held in self._inside or any(held in group for group in self._groups)

    def forget(self, held: HeldRequest) -> None:
        """A request is over."""
        if held in self._inside:
            self._inside.remove(held)
            return
        for group in self._groups:
            if held in group:
                group.remove(held)
        self._groups = deque(group for group in self._groups if group)
