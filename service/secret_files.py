"""Files that hold a secret: read only where nobody else can read or write them."""

import errno
import os
import stat
from pathlib import Path

from .ownership import why_not_ours
from .regular_files import open_regular

_BYTES_MAX = 16 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_secret(path: Path) -> str:
    """The text in a file of this user's or root's, without blanks and line ends around it.

    Raises:
        OSError: it cannot be read, others may read or write it, or it holds more than a secret.
        UnicodeDecodeError: it is no text.
    """
    if why := why_not_ours([path]):
        raise PermissionError(errno.EPERM, why, str(path))
    with open_regular(path) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _OTHERS:
            why = f"other users can read it (mode {mode:04o}; chmod 600)"
            raise PermissionError(errno.EPERM, why, str(path))
        raw = file.read(_BYTES_MAX + 1)
    if len(raw) > _BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {_BYTES_MAX} bytes", str(path))
    return raw.decode().strip()


def is_private(path: Path) -> bool:
    """Whether nobody but its user may do anything with a file.

    Raises:
        OSError: it cannot be looked at.
    """
    return not stat.S_IMODE(path.stat().st_mode) & _OTHERS
