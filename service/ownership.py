"""Whether files and folders can only have been written by whom this process must trust anyway.

One rule for everything that leads to code or settings: a file, each folder on the way to it, and
each link on that way must belong to this process's user or to root, and be writable by nobody else.
A folder whose whole content may be run, as that of a Python environment, is looked through.
"""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_LINKS_MAX = 40
_FOLDERS_MAX = 200_000
_ROOT = 0


def why_not_ours(paths: Iterable[Path]) -> str:
    """Why somebody else may have written one of these, or put another in its place; or empty.

    A group counts as the user where it is root's, or bears the user's own name and has no other
    member (many systems give each user one). On the way to a path a folder with the sticky bit, as
    `/tmp` has it, may be written by all: nobody can take away there what is another's. On a file
    system that is mounted read-only, as volumes of containers are, modes of root's files mean
    nothing. The text names path and mode, and the remedy.
    """
    seen: set[tuple[Path, bool]] = set()
    try:
        for path in paths:
            for step in _steps(path):
                if step in seen:
                    continue
                seen.add(step)
                why = _why_not_ours_alone(*step)
                if why:
                    return why
    except OSError as error:
        return f"{error.filename} cannot be inspected: {error.strerror}"
    return ""


def why_not_ours_within(folder: Path) -> str:
    """Why somebody else may have written a folder, or anything below it; or empty.

    The rule is that of `why_not_ours`. Folders that links lead to are looked through as well; a
    link that leads nowhere passes where nobody else could put something there.
    """
    if why := why_not_ours([folder]):
        return why
    waiting = [Path(os.path.realpath(folder))]
    seen = set(waiting)
    try:
        while waiting:
            if len(seen) > _FOLDERS_MAX:
                return f"{folder} has more than {_FOLDERS_MAX} folders"
            for path in list(waiting.pop().iterdir()):
                if why := _why_not_ours_alone(path, is_last=True) or _why_not_behind_link(path):
                    return why
                if path.is_dir() and (real := Path(os.path.realpath(path))) not in seen:
                    seen.add(real)
                    waiting.append(real)
    except OSError as error:
        return f"{error.filename} cannot be inspected: {error.strerror}"
    return ""


def _why_not_behind_link(link: Path) -> str:
    if not link.is_symlink():
        return ""
    for path, is_last in _steps(link):
        if not os.path.lexists(path):
            return _why_not_ours_alone(path.parent, is_last=True)
        if why := _why_not_ours_alone(path, is_last):
            return why
    return ""


def _steps(path: Path) -> Iterator[tuple[Path, bool]]:
    """Each folder and link on the way to a path, from the root on; and whether it is the last."""
    waiting = list(reversed((Path.cwd() / path).parts[1:]))
    here, links = Path("/"), 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            here = here.parent
            continue
        step = here / part
        yield step, not waiting
        if not step.is_symlink():
            here = step
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        if target.is_absolute():
            here = Path("/")
        waiting += reversed([part for part in target.parts if part != "/"])


def _why_not_ours_alone(path: Path, is_last: bool) -> str:  # noqa: FBT001 - a pair of `_steps`
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (_ROOT, os.geteuid()):
        return (
            f"{path} (mode {mode:04o}) belongs to user {found.st_uid}, and this process is user "
            f"{os.geteuid()}"
        )
    is_sticky_way = mode & stat.S_ISVTX and stat.S_ISDIR(found.st_mode) and not is_last
    if stat.S_ISLNK(found.st_mode) or is_sticky_way or _is_fixed(path, found):
        return ""
    if mode & stat.S_IWOTH:
        return f"every user can write to {path} (mode {mode:04o}; chmod o-w)"
    if mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"its group can write to {path} (mode {mode:04o}; chmod g-w)"
    return ""


def _is_fixed(path: Path, found: os.stat_result) -> bool:
    return found.st_uid == _ROOT and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_private(group_id: int) -> bool:
    if group_id == _ROOT:
        return True
    try:
        group, user = grp.getgrgid(group_id), pwd.getpwuid(os.geteuid())
    except KeyError:  # a container without entries for its user
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
