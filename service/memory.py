"""How much memory is free, and how glibc's allocator treats large blocks.

It hands a large block, such as the inputs of a request, back to the kernel as soon as it is freed.
To have the kernel map it again for the next request costs several times as much as to fill it.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024  # the highest that it takes
_KEPT_BYTES = 64 * 1024 * 1024

# The same for a program that is started; others than those of glibc pass it over.
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(_MMAP_THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_BYTES),
}


def keep_freed_memory() -> None:
    """Let the allocator keep some of what is freed for what is allocated next."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def free_host_bytes(root: Path = Path("/")) -> int:
    """What this process and others of its control groups can still have; `root` is the system's."""
    available: int = psutil.virtual_memory().available
    return min([available, *_rooms(root)])


# File of the limit, of what is in use, and the field of `memory.stat` for what can be taken back.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _rooms(root: Path) -> Iterator[int]:
    """What is left of each limit on this process's control groups (Linux)."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = root / "sys/fs/cgroup" / controllers
            group = top / path.lstrip("/")
            # In a container the path may be the host's, of which only the top is to be seen.
            for folder in (group, *group.parents):
                if folder.is_relative_to(top):
                    yield from _room(folder)


def _room(folder: Path) -> Iterator[int]:
    for limit, used, reclaimable in _FILES:
        with suppress(OSError, ValueError):  # no such file, or no limit: `max`
            left = int((folder / limit).read_text()) - int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0, left + int(stat.get(reclaimable, 0)))
