"""Who receives, the device thread or the main thread.

To hand a message from one thread to another costs a wake-up, which takes longer than a small batch.
So the device thread receives for itself while it has nothing to do, and the main thread stands in
for it while it works.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .thread_pool import Job

# The main thread is woken for work that is known to be long; for what is long against expectation
# it comes on its own, after this time.
_LOOK_S = 0.1


class _Work(NamedTuple):
    """A job of the device thread; `is_long`: it may well take longer than to wake a thread."""

    job: Job
    is_long: bool
    is_batch: bool


class ReceiveTurns:
    """The jobs of the device thread, and whose turn it is to receive.

    `receive` waits for messages, for a while only, and handles them before anybody else receives;
    it is called by one thread at a time. `wake` makes it return.
    """

    def __init__(self, receive: Callable[[], None], wake: Callable[[], None]) -> None:
        self._receive = receive
        self._wake = wake
        self._turn = threading.Lock()  # held by the thread that receives
        self._jobs: deque[_Work] = deque()
        self._is_working = False  # written by the device thread
        self.is_between = False  # a batch runs within another job; of the device thread
        self._awaits_news = False  # the device thread waits within a job; written by it
        self._news = threading.Event()
        self._look = threading.Event()

    def submit(self, job: Job, *, is_long: bool, is_batch: bool = False) -> None:
        """Have the device thread do `job`, after those submitted before it; for `receive` to call.

        `is_long`: it may well take longer than to wake a thread. `is_batch`: it may be done within
        the job before it.
        """
        self._jobs.append(_Work(job, is_long, is_batch))
        if self._awaits_news:
            self._news.set()

    def work(self, is_over: Callable[[], bool]) -> None:
        """Do jobs, and receive while there are none; on the device thread."""
        while not is_over():
            if not self._jobs:
                self._take_turn()
                continue
            work = self._jobs.popleft()
            self._is_working = True
            if work.is_long:
                self._look.set()
            work.job()
            self._is_working = False
        self._look.set()

    def do_batches(self) -> None:
        """Do the batches that are next; within a job, on the device thread."""
        while self._jobs and self._jobs[0].is_batch:
            self.is_between = True
            self._jobs.popleft().job()
            self.is_between = False

    def do_batches_until(self, is_over: Callable[[], bool]) -> None:
        """Do batches until then; as `do_batches`. Whoever brings it about has to `nudge`."""
        self._awaits_news = True
        while not is_over():
            self._news.clear()
            self.do_batches()
            if not is_over():
                self._news.wait()
        self._awaits_news = False

    def nudge(self) -> None:
        """Have `do_batches_until` look whether it is over."""
        self._news.set()

    def _take_turn(self) -> None:
        if self._turn.locked():
            self._wake()
        with self._turn:
            if not self._jobs:
                self._receive()

    def stand_in(self, is_over: Callable[[], bool]) -> None:
        """Receive while the device thread works; on the main thread."""
        while not is_over():
            self._look.wait(_LOOK_S)
            self._look.clear()
            while self._is_working and not is_over():
                with self._turn:
                    self._receive()
