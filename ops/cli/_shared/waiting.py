"""How commands wait for a fleet, with a line of progress on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from ....service.clock import SystemClock
from ....service.lifecycle import StopSignal
from ....wire.texts import terminal_text
from ...verdict import Waiting


@contextmanager
def progress_line(text: str) -> Iterator[Waiting]:
    """How to wait while one line on stderr, where that is a terminal, says for what."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    clock, pause = SystemClock(), StopSignal().wait
    if not console.is_terminal:
        yield Waiting(clock=clock, pause=pause, report=bool)
        return
    with console.status(Text(terminal_text(text))) as status:
        yield Waiting(
            clock=clock, pause=pause, report=lambda now: status.update(Text(terminal_text(now)))
        )
