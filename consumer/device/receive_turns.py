"""Who receives, the device thread or the main thread.

To hand a message from one thread to another costs a wake-up, which takes longer than a small batch.
So the device thread receives for itself while it has nothing to do, and the main thread stands in
for it while it works.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from .thread_pool import Job

# The main thread is woken for work that is known to be long; for what is long against expectation
# it comes on its own, after this time.
_LOOK_S = 0.1


class ReceiveTurns:
    """The jobs of the device thread, and whose turn it is to receive.

    `receive` waits for messages, for a while only, and handles them before anybody else receives;
    it is called by one thread at a time. `wake` makes it return.
    """

    def __init__(self, receive: Callable[[], None], wake: Callable[[], None]) -> None:
        self._receive = receive
        self._wake = wake
        self._turn = threading.Lock()  # held by the thread that receives
        self._jobs: SimpleQueue[tuple[Job, bool]] = SimpleQueue()
        self._is_working = False  # written by the device thread
        self._look = threading.Event()

    def submit(self, job: Job, *, is_long: bool) -> None:
        """Have the device thread do `job`, after those submitted before it; for `receive` to call.

        `is_long`: it may well take longer than to wake a thread.
        """
        self._jobs.put((job, is_long))

    def work(self, is_over: Callable[[], bool]) -> None:
        """Do jobs, and receive while there are none; on the device thread."""
        while not is_over():
            try:
                job, is_long = self._jobs.get_nowait()
            except Empty:
                self._take_turn()
                continue
            self._is_working = True
            if is_long:
                self._look.set()
            job()
            self._is_working = False
        self._look.set()

    def _take_turn(self) -> None:
        if self._turn.locked():
            self._wake()
        with self._turn:
            if self._jobs.empty():
                self._receive()

    def stand_in(self, is_over: Callable[[], bool]) -> None:
        """Receive while the device thread works; on the main thread."""
        while not is_over():
            self._look.wait(_LOOK_S)
            self._look.clear()
            while self._is_working and not is_over():
                with self._turn:
                    self._receive()
