"""How glibc's allocator treats large blocks, such as the inputs of a request.

It hands a large block back to the kernel as soon as it is freed. To have the kernel map the block
again for the next request costs several times as much as to fill it.
"""

import ctypes

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
