"""Whether files can only have been written by the user who runs this process."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path


def foreign_hand(paths: Iterable[Path]) -> str:
    """Why somebody else may have written one of these files or folders; empty where nobody can.

    Each must belong to this user and be writable by nobody else; a group that bears the user's own
    name (many systems give each user one) counts as the user. Whoever could have replaced a file
    by writing to its folder is found by passing the folder as well.
    """
    return next(filter(None, map(_foreign_to_one, paths)), "")


def _foreign_to_one(path: Path) -> str:
    try:
        found = path.stat()
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror}"
    if found.st_uid != os.geteuid():
        return f"{path} belongs to user {found.st_uid}, and this process is user {os.geteuid()}"
    if found.st_mode & stat.S_IWOTH:
        return f"anybody may write to {path} (chmod o-w)"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"its group may write to {path} (chmod g-w)"
    return ""


def _is_private(group_id: int) -> bool:
    try:
        group, user = grp.getgrgid(group_id), pwd.getpwuid(os.geteuid())
    except KeyError:  # a container without entries for its user
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
