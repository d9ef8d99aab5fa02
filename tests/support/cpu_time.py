"""How much of the CPU a call takes, whatever else the process of the tests holds and does."""

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import thread_time


@dataclass
class Taken:
    """Seconds of this thread's own CPU time."""

    seconds: float = 0.0


@contextmanager
def cpu_time():
    """Measure the block, without a collection: that walks over everything the process holds."""
    taken = Taken()
    gc.disable()
    began = thread_time()
    try:
        yield taken
    finally:
        taken.seconds = thread_time() - began
        gc.enable()


def process_cpu_s(pid):
    """CPU time of all threads of a process, in nanosecond steps."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
