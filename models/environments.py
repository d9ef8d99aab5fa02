"""Python environments that versions ask for: their names, and the interpreters behind them.

A manifest's `environment` is one of

    ""                 the worker's own Python
    /opt/envs/torch1   a virtual environment by its path, which the operator of a worker keeps
    env:<sha256>       what the lock file of that digest says; the file is part of the version

One built from a lock file lies in the cache, under its digest and the kind of Python that made it,
with a stamp that is written last: a folder without it is half built and counts for nothing.

None of them runs unless the operator allows it (`environment_rule.py`), and only where nobody else
can have written anything in it.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson

from ..service.ownership import why_not_ours, why_not_ours_within
from ..service.regular_files import read_regular
from ..wire.errors import EnvironmentMissingError, StoreError
from .cache import own_cache
from .environment_rule import LOCKED, EnvironmentRule
from .files import FileEntry, is_intact

BUILD_TIMEOUT_S = 3600.0

_STAMP = "batchfleet-environment.json"
_CONFIG = "pyvenv.cfg"
_SMALL_BYTES_MAX = 100_000
_HOME = re.compile(r"^home\s*=\s*(/.*?)\s*$", re.MULTILINE)
# Whatever the mask of whoever builds it: an environment that others may write to is not run.
_UMASK = 0o022


def python_of(name: str, version: str, rule: EnvironmentRule, cache: Path) -> Path:
    """The interpreter of the environment `name`, which is not the worker's own.

    Args:
        name: as the *manifest* of the version has it, which was compared with the record.
        version: the model's version that needs it, `model/version`.
        rule: what may run here.
        cache: where environments are built.

    Raises:
        StoreError: it must not run here, or others may have written to it.
        EnvironmentMissingError: it is not here; the text says what to do.
    """
    if why := rule.refusal(name):
        raise StoreError(why)
    folder = locked_folder(name, cache) if name.startswith(LOCKED) else Path(name)
    missing = _why_missing(name, folder, version)
    if missing:
        raise EnvironmentMissingError(missing)
    if why := why_not_ours_within(folder) or why_not_ours(_base_folders(folder)):
        raise StoreError(f"its environment {name} is refused: {why}")
    return folder / "bin" / "python"


def _why_missing(name: str, folder: Path, version: str) -> str:
    if name.startswith(LOCKED):
        if _stamp_of(folder) == _stamp_for(name):
            return ""
        return (
            f"it needs the environment {name[:16]}…, which was not built on this machine; run "
            f"`batchfleet models environment build {version}` there, then deploy again"
        )
    if (folder / _CONFIG).is_file() and (folder / "bin" / "python").exists():
        return ""
    return (
        f"it needs the virtual environment {name}, which is not on this machine; create it, then "
        "deploy again"
    )


def _base_folders(folder: Path) -> list[Path]:
    """Where the standard library of a virtual environment comes from."""
    try:
        raw = read_regular(folder / _CONFIG, _SMALL_BYTES_MAX)
    except OSError:
        return []
    return [Path(home) for home in _HOME.findall(raw.decode(errors="replace"))]


def locked_folder(name: str, cache: Path) -> Path:
    """Where the environment of a lock file is built, for the kind of Python that runs this."""
    digest = name.removeprefix(LOCKED)
    return cache / "environments" / f"{digest}-{sys.implementation.cache_tag}"


def _stamp_for(name: str) -> dict[str, str]:
    tag = sys.implementation.cache_tag or ""
    return {"sha256": name.removeprefix(LOCKED), "python": tag}


def _stamp_of(folder: Path) -> object:
    try:
        found: object = orjson.loads(read_regular(folder / _STAMP, _SMALL_BYTES_MAX))
    except (OSError, orjson.JSONDecodeError):
        return None
    return found


def build_locked(name: str, lock_file: Path, cache: Path) -> Path:
    """Build the environment of a lock file, unless it is there; returns its folder.

    pip runs with `--require-hashes` and takes nothing but what the lock file names, wheels only:
    building a package would run code that nobody has pinned.

    Raises:
        StoreError: the file is not the one that `name` means, or venv or pip failed.
    """
    folder = locked_folder(name, cache)
    own_cache(folder.parent)
    if _stamp_of(folder) == _stamp_for(name):
        return folder
    entry = FileEntry(name.removeprefix(LOCKED), lock_file.stat().st_size)
    if not is_intact(lock_file, entry):
        raise StoreError(f"{lock_file} is not the lock file of {name}")
    shutil.rmtree(folder, ignore_errors=True)
    # `-P`: no file of the folder that we were started in takes the place of a module.
    venv = [sys.executable, "-P", "-m", "venv", str(folder)]
    _run(venv, "venv could not create the environment")
    pip = [str(folder / "bin" / "python"), "-P", "-m", "pip", "install", "--require-hashes"]
    pip += ["--only-binary", ":all:", "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*pip, "-r", str(lock_file)], "pip could not install the lock file")
    (folder / _STAMP).write_bytes(orjson.dumps(_stamp_for(name)))
    return folder


def _run(command: list[str], complaint: str) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=BUILD_TIMEOUT_S,
            check=False,
            umask=_UMASK,
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{complaint} within {BUILD_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise StoreError(f"{complaint}: {(done.stderr or done.stdout).strip()[-800:]}")
