"""The end of a child, and of everything that it started.

A process that somebody else's code runs in may start others, in sessions of their own, with files
and environments of their own. They are found by their session, by a mark in the environment that
they inherited, or because they were seen among its descendants before.
"""

import ctypes
import os
import select
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "BATCHFLEET_DEVICE_PROCESS"
_PR_SET_CHILD_SUBREAPER = 36
_WNOTHREAD = 0x20000000  # of wait(2) on Linux: children of the calling thread alone
_SEEN_MAX = 4096
_ROUNDS = 5
_ROUND_S = 0.3
_REAP_MAX = 1000


class ProcessEnd:
    """A descriptor that becomes readable, and stays so, when a child has ended.

    Files of the child that are still open elsewhere do not matter. It does not reap the child; if
    the system has no `pidfd_open`, a thread that reaps waits instead.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._fd = _pidfd(process.pid)
        if self._fd < 0:
            self._fd, self._write = os.pipe()
            threading.Thread(target=self._wait, name="waits for a child", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()  # without a timeout: it lasts as long as the child
        os.close(self._write)

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end, at most `timeout_s`; tell whether it has come. For any thread."""
        poller = select.poll()  # one must not be shared by threads
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout_s) * 1000))

    def close(self) -> None:
        """Close the descriptor; once, and after the end."""
        os.close(self._fd)


def _pidfd(pid: int) -> int:
    """A descriptor of a child; -1 where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def child_pids(pid: int) -> list[int]:
    """Children of a process, zombies included; none where it is gone."""
    try:
        texts = [
            Path(thread, "children").read_text(encoding="ascii")
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except FileNotFoundError:
        return _child_pids_slowly(pid)
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def _child_pids_slowly(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


class ProcessTree:
    """A process and all that came of it. `pid` must not be reaped before `end` was called.

    Args:
        pid: of the process.
        mark: the value of `MARK` in its environment.
        has_session: whether it leads a session of its own.
    """

    def __init__(self, pid: int, mark: str, *, has_session: bool) -> None:
        self._pid = pid
        self._mark = mark
        self._has_session = has_session
        self._seen: dict[int, psutil.Process] = {}

    def look(self) -> None:
        """Remember who is among its descendants now."""
        seen: dict[int, psutil.Process] = {}
        ahead = child_pids(self._pid)
        while ahead and len(seen) < _SEEN_MAX:
            pid = ahead.pop()
            known = self._seen.get(pid)
            with suppress(psutil.Error):
                seen[pid] = known if known and known.is_running() else psutil.Process(pid)
                ahead += child_pids(pid)
        # Who has lost its parent meanwhile is a descendant none the less.
        for pid, process in self._seen.items():
            if pid not in seen and len(seen) < _SEEN_MAX and process.is_running():
                seen[pid] = process
        self._seen = seen

    def end(self) -> None:
        """Kill what is left of it, once the process itself has ended."""
        for _ in range(_ROUNDS):
            left = [*self._left()]
            if not left:
                return
            kill_all(left)

    def _left(self) -> Iterator[psutil.Process]:
        for pid in psutil.pids():
            if pid == self._pid:
                continue
            with suppress(psutil.Error, OSError):
                if self._is_ours(pid):
                    yield psutil.Process(pid)

    def _is_ours(self, pid: int) -> bool:
        seen = self._seen.get(pid)
        if seen is not None and seen.is_running():
            return bool(seen.status() != psutil.STATUS_ZOMBIE)
        process = psutil.Process(pid)
        if self._has_session and os.getsid(pid) == self._pid:
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        return bool(process.environ().get(MARK) == self._mark)


def kill_all(processes: Collection[psutil.Process]) -> None:
    """Kill processes that are no children of ours by birth, and wait for them for a moment."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_ROUND_S)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, instead of the system's first process.

    Linux alone knows this. They become children of the main thread.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Forget adopted children that have ended.

    For a main thread that started no child itself which it has not waited for: children of other
    threads are left to these.
    """
    if sys.platform != "linux":
        return
    with suppress(ChildProcessError):
        for _ in range(_REAP_MAX):
            if os.waitpid(-1, os.WNOHANG | _WNOTHREAD) == (0, 0):
                return


def end_orphans(known: Collection[int]) -> None:
    """Kill adopted children, which are all but the `known` ones, and what they leave behind."""
    for _ in range(_ROUNDS):
        left: list[psutil.Process] = []
        for pid in child_pids(os.getpid()):
            if pid not in known:
                with suppress(psutil.Error):
                    left.append(psutil.Process(pid))
        if not left:
            return
        kill_all(left)
