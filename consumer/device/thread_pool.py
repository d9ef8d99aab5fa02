"""Threads that take jobs from one queue."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

Job = Callable[[], None]


@dataclass(frozen=True, slots=True)
class JobsMax:
    """How many jobs may be at work at once: of one tenant, and of those for one of its hosts."""

    of_tenant: int
    of_host: int


class FairQueue:
    """Jobs of tenants for hosts. The tenant with the fewest at work is next.

    So slow jobs hold up only those of their own tenant, and of these only those for their own host
    while the tenant has room. A host that tenants share has no bound of its own: who is slow there
    would hold up the others. Safe to use from any thread.
    """

    def __init__(self, most: JobsMax) -> None:
        self._most = most
        self._changed = threading.Condition()
        # Guarded by _changed, as are the others.
        self._waiting: dict[tuple[str, str], deque[Job]] = {}
        self._of_tenant: Counter[str] = Counter()
        self._of_host: Counter[tuple[str, str]] = Counter()
        self._ends = 0

    def put(self, job: Job | None, tenant: str = "", host: str = "") -> None:
        """Add a job; None = that one taker ends once there are no jobs."""
        with self._changed:
            if job is None:
                self._ends += 1
            else:
                self._waiting.setdefault((tenant, host), deque()).append(job)
            self._changed.notify_all()

    def get(self) -> Job | None:
        """The next job, or None to end; waits for either."""
        with self._changed:
            while True:
                names = [name for name in self._waiting if self._has_room(*name)]
                if names:
                    name = min(names, key=lambda name: self._of_tenant[name[0]])
                    return partial(self._do, self._pop(name), name)
                if self._ends and not self._waiting:
                    self._ends -= 1
                    return None
                self._changed.wait()

    def _has_room(self, tenant: str, host: str) -> bool:
        most = self._most
        is_free = self._of_host[tenant, host] < most.of_host
        return is_free and self._of_tenant[tenant] < most.of_tenant

    def _pop(self, name: tuple[str, str]) -> Job:
        self._of_tenant[name[0]] += 1
        self._of_host[name] += 1
        jobs = self._waiting.pop(name)
        job = jobs.popleft()
        if jobs:
            self._waiting[name] = jobs  # behind the other names
        return job

    def _do(self, job: Job, name: tuple[str, str]) -> None:
        try:
            job()
        finally:
            with self._changed:
                self._of_tenant -= Counter((name[0],))  # which forgets what is at zero
                self._of_host -= Counter((name,))
                self._changed.notify_all()


Jobs = SimpleQueue[Job | None] | FairQueue


class ThreadPool:
    """A few threads with one queue.

    A job reports its own errors; what still escapes it is a bug or a call to `exit` by a model.
    Either would leave requests without an answer while the process looks healthy, so `crashed` is
    called and must end the process, or at least its connection. The queue is bounded by the main
    process, which hands over no more than it has room for.
    """

    def __init__(
        self,
        name: str,
        size: int,
        crashed: Callable[[BaseException], None],
        jobs: Jobs | None = None,
    ) -> None:
        self._jobs: Jobs = SimpleQueue() if jobs is None else jobs
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
