"""What a run needs before it can break something: signals of the product, never a chance to be met.

A provocation that does not come about is no failure of the product: the run was not played.
"""

from tests.support.fleet import until

from .history import read_history
from .told_model import GATE


class NotPlayedError(AssertionError):
    """What a run wanted to break never came about, so that it shows nothing of the product."""


def provoked(condition, what):
    """Wait until what a run is about to break is there; returns the condition's value.

    Raises:
        NotPlayedError: it never was.
    """
    try:
        return until(condition, what)
    except AssertionError as error:
        raise NotPlayedError(str(error)) from error


class Gate:
    """Work that lasts until it is let through: `switch` goes before its text.

    Unlike a piece of work of some length it cannot be over before somebody looks.
    """

    def __init__(self, path, computed):
        self._path = path
        self._computed = computed
        self._seen = len(read_history(computed))
        self.switch = f"{GATE}{path}"

    def has_begun(self, pid):
        """Whether a device process has begun with work at some gate since this one was made."""
        lines = read_history(self._computed)[self._seen :]
        return any(line["pid"] == pid for line in lines)

    def open(self):
        """Let the work through, and all that comes after it."""
        self._path.touch()
