"""What the threads of one worker share."""

import threading

from ...broker.interface import COMMAND_TIMEOUT_S, Executor
from ..batching.state import Lane
from .context import WorkerContext


class SharedState:
    """A worker's name, lock and clock, and what any of its threads may find out.

    `lock` guards what says so here and in the worker's units; `changed` signals it.
    """

    def __init__(self, context: WorkerContext, name: str) -> None:
        self.name = name
        self.context = context
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.stopping = threading.Event()
        self.taking = True  # only ever goes to False
        self.failure: BaseException | None = None
        self.server_offset_ms = 0.0  # server time minus monotonic time
        # How many answers were lost that may have handed entries to us; guarded by lock.
        self.lost_answers = 0
        self.free_device_bytes = 0  # of a CUDA device, as a device process said last
        # Versions with entries that are pending for us and not held; guarded by lock.
        self.orphaned: set[tuple[str, str]] = set()

    def connect(self, purpose: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Executor:
        """A connection of this worker's for one thread."""
        return self.context.broker.connect(f"{self.name}-{purpose}", timeout_s)

    def serving(self) -> list[str]:
        """Names of the versions that serve right now; the lock is held."""
        return []

    def now_ms(self) -> float:
        """Monotonic time."""
        return self.context.clock.monotonic_ms()

    def server_now_ms(self) -> float:
        """The server's clock, as far as known."""
        return self.now_ms() + self.server_offset_ms

    def fail(self, error: BaseException) -> None:
        """A thread died of `error`; the keeper ends the worker and raises it."""
        self.failure = error
        self.stopping.set()
        with self.lock:
            self.changed.notify_all()

    def note_lost_answer(self) -> None:
        """An answer was lost that may have handed entries to us: intake reads what is pending."""
        with self.lock:
            self.lost_answers += 1

    def note_orphaned(self, lane: Lane) -> None:
        """Entries of a lane that is gone are pending for us and not held."""
        with self.lock:
            self.lost_answers += 1
            self.orphaned.add((lane.model, lane.version))

    def report_unreadable(self, what: str) -> None:
        """Report an entry that no router wrote."""
        self.context.events.emit("worker.unreadable_entry", worker=self.name, reason=what)
