"""How large a batch the device's memory holds, as far as failures have told."""

from math import inf

_RECOVERY = 1.01


class MemoryLimit:
    """Padded tokens of one batch that are tried at once. Owned by the device thread.

    It halves with each batch that was too large. It recovers by a hundredth with each batch that
    was cut because of it and went through, and is forgotten once it reaches what failed.
    """

    def __init__(self) -> None:
        self._tokens = inf
        self._failed_tokens = inf

    def allows(self, rows: int, longest: int) -> bool:
        """Whether a batch may be tried whole; a single row always may."""
        return rows == 1 or rows * longest <= self._tokens

    def halve(self, rows: int, longest: int) -> None:
        """A batch of this size ran out of memory."""
        self._failed_tokens = min(self._failed_tokens, rows * longest)
        self._tokens = min(self._tokens, rows * longest / 2)

    def recover(self) -> None:
        """A batch that was cut because of the limit went through."""
        self._tokens *= _RECOVERY
        if self._tokens >= self._failed_tokens:
            self._tokens = self._failed_tokens = inf

    def saved(self) -> tuple[float, float]:
        """What `restore` takes."""
        return self._tokens, self._failed_tokens

    def restore(self, saved: tuple[float, float]) -> None:
        """Forget failures since `saved`: a row ran out of memory all alone, so it was the row."""
        self._tokens, self._failed_tokens = saved
