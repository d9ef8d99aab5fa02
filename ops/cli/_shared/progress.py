"""Progress bars on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
)

from ....models.files import Progress as Report
from ....wire.texts import terminal_text


@contextmanager
def counting_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields a function to call with how many more are done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(terminal_text(what), total=total)

        def advance(count: int) -> None:
            progress.advance(task, count)

        yield advance


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A progress bar on stderr for each file that is fetched or copied."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    screen = Console(stderr=True)
    hidden = not screen.is_terminal  # it would leave an empty line in a file
    with Progress(*columns, console=screen, transient=True, disable=hidden) as progress:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done_bytes: int, total_bytes: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(terminal_text(name), total=total_bytes)
            progress.update(tasks[name], completed=done_bytes)

        yield report
