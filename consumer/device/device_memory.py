"""Memory that a version takes, of a CUDA device or of this process; and whether there is enough."""

import sys

from ...wire.errors import StoreError
from ..link.protocol import Load
from .batch_memory import free_bytes
from .host import resident_bytes

_MEBIBYTE = 1 << 20


def held_bytes(device: str) -> int:
    """What this process holds of the host's memory, on CUDA of the device's.

    torch is asked only where a model has imported it; this module must not bring it in.
    """
    if not device.startswith("cuda"):
        return resident_bytes()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return 0 if cuda is None or not cuda.is_initialized() else int(cuda.memory_reserved(device))


def require_room(load: Load, needed_bytes: int) -> None:
    """Go on where a version can be loaded beside what serves; a first load is tried in any case.

    Raises:
        StoreError: it needs more than there is, and could end the others.
    """
    if not load.beside:
        return
    free = free_bytes(load.device)
    if needed_bytes > free:
        raise StoreError(
            f"not enough memory beside {load.beside}: it needs {needed_bytes // _MEBIBYTE} MiB, "
            f"and {free // _MEBIBYTE} MiB are free"
        )
