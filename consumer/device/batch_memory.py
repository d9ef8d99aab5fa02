"""What memory batches take, and how much is free: on a CUDA device, else in this process.

How many rows make a full batch where no limit says so depends on it.
"""

import ctypes
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self")
# Makes the kernel begin anew with the peak of a process.
_RESET_PEAK = "5"


def free_bytes(device: str) -> int:
    """Free memory of a device, with what torch keeps for itself; else `free_host_bytes`."""
    cuda = _cuda(device)
    if cuda is None:
        return free_host_bytes(_OWN / "cgroup", _CGROUPS)
    free, _ = cuda.mem_get_info(device)
    return int(free + cuda.memory_reserved(device) - cuda.memory_allocated(device))


def free_host_bytes(membership: Path, root: Path) -> int:
    """What programs may still take of this host, and of the cgroups (v2) that this process is in.

    Args:
        membership: the file that names the process's cgroup.
        root: where cgroups are mounted.
    """
    free = psutil.virtual_memory().available
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            if line.startswith("0::/"):
                folder = root / line.removeprefix("0::/")
                inside = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
                free = min([free, *(_left_in(each) for each in inside)])
    return max(0, int(free))


def _left_in(cgroup: Path) -> float:
    """Bytes below the limit of a cgroup; what the kernel would drop at once counts as free."""
    try:
        limit = float((cgroup / "memory.max").read_text().replace("max", "inf"))
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return limit - used + int(stat["inactive_file"])
    except (OSError, KeyError, ValueError):  # the root has no such files, cgroups v1 neither
        return inf


class PeakMemory:
    """How much more memory than at first a device, or this process, took at any time since."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = self._begin()

    def grown_bytes(self) -> int:
        """0 where the system does not tell."""
        return max(0, self._peak() - self._before)

    def _begin(self) -> int:
        cuda = _cuda(self._device)
        if cuda is not None:
            cuda.reset_peak_memory_stats(self._device)
            return int(cuda.memory_allocated(self._device))
        # What the allocator keeps would be used first, and hide what is taken.
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        with suppress(OSError):
            (_OWN / "clear_refs").write_text(_RESET_PEAK)
        return self._peak()

    def _peak(self) -> int:
        cuda = _cuda(self._device)
        if cuda is not None:
            return int(cuda.max_memory_allocated(self._device))
        with suppress(OSError):
            for line in (_OWN / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return 0


def _cuda(device: str) -> Any:
    """`torch.cuda` for a device of it; None for others, and where the model brings no torch."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and device.startswith("cuda") else None
