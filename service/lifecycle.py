"""How our processes start, stop, and end together.

The contract: constructors neither block nor start anything; `start` and `stop` may be called twice;
`stop` returns when everything has stopped. The first SIGTERM or SIGINT asks for that, the second
one ends the process at once. A child never outlives its parent.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1
# Looked up at import: between fork and exec nothing may be loaded any more.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EXIT_BY_SIGNAL = 128


class StopSignal:
    """One request to stop, from a signal or from code, that any number of threads can wait on.

    It is a pipe and not a `threading.Event`, because `Event.set` in a signal handler deadlocks
    when the signal arrives while the main thread is entering or leaving `Event.wait`.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._is_set = False  # only ever goes from False to True
        self._signalled = False  # main thread only
        weakref.finalize(self, _close_both, self._read, self._write)

    def install(self) -> None:
        """Answer SIGTERM and SIGINT from now on.

        Raises:
            ValueError: called outside of the main thread.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def fileno(self) -> int:
        """A descriptor that becomes readable, and stays so, when the signal is set."""
        return self._read

    def is_set(self) -> bool:
        """Whether somebody asked to stop."""
        return self._is_set

    def set(self) -> None:
        """Ask to stop. May be called twice, from any thread and from a signal handler."""
        if not self._is_set:
            self._is_set = True
            os.write(self._write, b"!")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the signal is set, at most `timeout_s`; tell whether it is."""
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        return self._is_set

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled:
            # Not sys.exit: a thread that will not end must not keep the process any longer.
            os._exit(_EXIT_BY_SIGNAL + number)
        self._signalled = True
        self.set()


def _close_both(read: int, write: int) -> None:
    os.close(read)
    os.close(write)


def die_with_parent(
    parent_pid: int | None = None, death_signal: signal.Signals = signal.SIGKILL
) -> None:
    """Have the kernel send this process `death_signal` when its parent ends (Linux; else nothing).

    "Parent" means the *thread* that started this process: when that thread ends, the signal comes
    even though the parent process lives on. A child that knows `parent_pid` (from its command
    line) passes it, so that a parent that was gone before this call is noticed as well.

    Raises:
        OSError: the kernel refused.
    """
    expected = os.getppid() if parent_pid is None else parent_pid
    set_death_signal(death_signal)
    end_without_parent(expected)


def set_death_signal(number: int) -> None:
    """Have the kernel send this signal when the parent ends; 0: none (Linux; else nothing).

    Raises:
        OSError: the kernel refused.
    """
    if _LIBC is not None and _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def end_without_parent(parent_pid: int) -> None:
    """End this process where the parent has ended already."""
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def spawn(
    command: Sequence[str | os.PathLike[str]],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a child that dies with the calling thread; `options` are those of `subprocess.Popen`.

    Call it from a thread that lives as long as the child shall: the kernel watches the thread that
    started the child, not the process. Ctrl-C of a terminal does not reach the child (it has a
    session of its own); stopping it is its owner's task.

    Raises:
        OSError: the command cannot be started.
    """
    parent_pid = os.getpid()
    options.setdefault("start_new_session", True)
    return subprocess.Popen(
        command,
        # Safe beside threads: all it does between fork and exec is two system calls.
        preexec_fn=lambda: die_with_parent(parent_pid, death_signal),  # noqa: PLW1509
        **options,
    )


@contextmanager
def interrupts_left_to_children() -> Iterator[None]:
    """Ctrl-C is for a child at the same terminal, a debugger perhaps; on the main thread only."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Stepped(Protocol):
    """What a thread does, pass by pass, so that a simulation can call the passes."""

    def step(self) -> float | None:
        """Do one pass.

        Returns:
            Seconds to pause before the next one; None once it is over.
        """

    def close(self) -> None:
        """Let go of what the passes used."""

    def run(self) -> None:
        """Step until it is over, pausing in between; then close."""


def run_steps(stepped: Stepped, wait: Callable[[float], object]) -> None:
    """The usual `Stepped.run`; `wait` pauses for some seconds, or less where all ends."""
    try:
        while (pause_s := stepped.step()) is not None:
            if pause_s:
                wait(pause_s)
    finally:
        stepped.close()


class Thread(Protocol):
    """What an owner needs of a thread that it made."""

    def start(self) -> None:
        """Start it, once."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most `timeout` seconds."""


MakeThread = Callable[[str, Stepped, Callable[[BaseException], None]], Thread]
"""Makes a thread from its name, what it does, and who is told when it fails."""


def stepped_thread(
    name: str, stepped: Stepped, on_failure: Callable[[BaseException], None]
) -> Thread:
    """A `guarded_thread` that runs what can be stepped."""
    return guarded_thread(name, stepped.run, on_failure)


def guarded_thread(
    name: str, target: Callable[[], None], on_failure: Callable[[BaseException], None]
) -> threading.Thread:
    """Make a daemon thread whose uncaught exception reaches its owner; the caller starts it.

    `on_failure` runs in the failed thread as its last act. It must not raise: typically it keeps
    the error and sets the `StopSignal`, and the owner raises it from its own `stop`.
    """

    def run() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - handed over whole to the thread's owner
            on_failure(error)

    return threading.Thread(target=run, name=name, daemon=True)
