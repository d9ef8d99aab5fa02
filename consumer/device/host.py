"""What the device process asks of the operating system: whom to die with, what to run on."""

import fcntl
import hashlib
import io
import os
import platform
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ...service.lifecycle import end_without_parent, set_death_signal
from ...wire.errors import SettingsError
from ...wire.names import shown

_OOM_SCORE_ADJ = 500
_STDERR = 2
_CPU_LINES = ("model name", "flags", "Features", "CPU part")
_RECURSION_MIN = 1000
# A tenth of a thread's share: the lowest has a hundredth, and a machine at its limit, which waits
# for a better version, would take minutes to load it.
_LOW_PRIORITY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """Where a model runs: `device` as a model is told (`cpu`, `cuda:N`), and cores to pin to."""

    device: str
    cores: frozenset[int] = frozenset()


def read_device(text: str) -> DeviceChoice:
    """Read a `device` setting: `cpu`, `cpu:0-1`, `cpu:0,2`, `cuda:N`.

    Raises:
        SettingsError: none of these.
    """
    kind, _, rest = text.partition(":")
    if kind == "cpu":
        return DeviceChoice(
            device="cpu", cores=_read_cores(text, rest) if ":" in text else frozenset()
        )
    if kind == "cuda" and rest.isdecimal():
        return DeviceChoice(device=text)
    raise SettingsError(f"device is {shown(text)}; use cpu, cpu:0-1 or cuda:N")


def _read_cores(text: str, ranges: str) -> frozenset[int]:
    cores: set[int] = set()
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 4096):
            raise SettingsError(f"device is {shown(text)}; write cores like cpu:0-1 or cpu:0,2")
        cores.update(range(int(first), int(last) + 1))
    return frozenset(cores)


def pin(cores: frozenset[int]) -> None:
    """Let all threads of this process, and those they start, run on `cores` alone.

    Systems without affinity (macOS) run unpinned, as they would without the setting.

    Raises:
        SettingsError: this machine does not offer these cores.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    missing = cores - os.sched_getaffinity(0)
    if missing:
        offered = sorted(os.sched_getaffinity(0))
        raise SettingsError(f"cores {sorted(missing)} are not available here; available: {offered}")
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def lower_priority() -> None:
    """Let this thread, and those that it starts, give way to others (Linux; else nothing).

    It cannot be taken back.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may not allow it; it is a courtesy
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)


def end_with(lifeline: int, parent_pid: int) -> None:
    """Have the kernel kill this process and its children when a pipe breaks (Linux; else nothing).

    The pipe breaks with the main process, and the kernel needs no help of ours: a native call that
    holds the interpreter cannot put it off. Children in this process's group end with it. It takes
    the place of `die_with_parent`, which would end this process first, and the pipe's reader with
    it.

    Raises:
        OSError: the kernel refused.
    """
    keep_from_children(lifeline)
    if not hasattr(fcntl, "F_SETSIG"):
        return
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid() if leads_group() else os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    except OSError:  # a sandbox may not know it; `die_with_parent` stays in force
        return
    set_death_signal(0)
    end_without_parent(parent_pid)


def end_group() -> None:
    """Kill this process and its group, where the group is its own."""
    if leads_group():
        os.killpg(os.getpid(), signal.SIGKILL)


def leads_group() -> bool:
    """Whether this process's group is its own."""
    return os.getpgid(0) == os.getpid()


def keep_from_children(descriptor: int) -> None:
    """Have no program that a model's code starts inherit a descriptor."""
    os.set_inheritable(descriptor, False)


def die_first_for_memory() -> None:
    """When memory is short, let the kernel kill this process, not the one that answers for it."""
    path = Path("/proc/self/oom_score_adj")
    if path.exists():
        path.write_text(str(_OOM_SCORE_ADJ))


def own_log_descriptor() -> int:
    """A descriptor of our own for where stderr goes now; a model may close or replace its own."""
    try:
        return os.dup(_STDERR)
    except OSError:  # the process was started without one
        return os.open(os.devnull, os.O_WRONLY)


def make_prints_safe() -> None:
    """What a model prints is lost neither with the process, nor for a character of it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")


def keep_room() -> None:
    """Give our own code enough stack, even if a model changed the limit."""
    if sys.getrecursionlimit() < _RECURSION_MIN:
        sys.setrecursionlimit(_RECURSION_MIN)


def cpu_identity() -> str:
    """What tells processors apart that compute at different speeds: name and instruction sets."""
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    except OSError:  # another system
        return f"{platform.machine()} {platform.processor()}"
    said = [line for line in first.splitlines() if line.startswith(_CPU_LINES)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def resident_bytes() -> int:
    """Resident memory of this process."""
    resident: int = psutil.Process().memory_info().rss
    return resident
