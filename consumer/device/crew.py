"""Threads that take jobs from one queue."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class Crew:
    """A few threads with one queue.

    A job reports its own errors; what still escapes it is a bug or a call to `exit` by a model.
    Either would leave requests without an answer while the process looks healthy, so `crashed` is
    called and must end the process, or at least its connection. The queue is bounded by the main
    process, which hands over no more than it has room for.
    """

    def __init__(self, name: str, size: int, crashed: Callable[[BaseException], None]) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._crashed = crashed
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{at}", daemon=True)
            for at in range(size)
        ]

    def start(self) -> None:
        """Start the threads; once."""
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Have a thread do `job`, after those submitted before it."""
        self._jobs.put(job)

    def finish(self, timeout_s: float) -> None:
        """Wait until all jobs are done and the threads gone; at most `timeout_s` each."""
        self.dismiss()
        for thread in self._threads:
            thread.join(timeout_s)

    def dismiss(self) -> None:
        """Let the threads end after what was submitted; does not wait for them."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
        except BaseException as error:  # noqa: BLE001  told to the owner, who ends all of it
            self._crashed(error)
