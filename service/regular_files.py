"""Files that somebody else names: only regular ones are read, and none is waited for."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path, *, follow_link: bool = True) -> BufferedReader:
    """Open a regular file for reading. Opening a fifo would wait for whoever writes to it.

    Raises:
        OSError: it cannot be read, is something else, or is a link that shall not be followed.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags if follow_link else flags | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file of at most so many bytes.

    Raises:
        OSError: as of `open_regular`; or it has more, which are not read.
    """
    with open_regular(path) as file:
        return read_at_most(file, most_bytes)


def read_at_most(file: BufferedReader, most_bytes: int) -> bytes:
    """The content of an open file of at most so many bytes.

    Raises:
        OSError: it has more, which are not read.
    """
    raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes")
    return raw
