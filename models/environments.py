"""Python environments that versions ask for: their names, and the interpreters behind them.

A manifest's `environment` is one of

    ""                 the worker's own Python
    /opt/envs/torch1   a virtual environment by its path, which the operator of a worker keeps
    env:<sha256>       what the lock file of that digest says; the file is part of the version

One built from a lock file lies in the cache, under its digest and the kind of Python that made it,
with a stamp that is written last: a folder without it is half built and counts for nothing.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson

from ..wire.errors import EnvironmentMissingError, StoreError
from ..wire.names import shown
from .files import FileEntry, is_intact, is_sha256

LOCKED = "env:"
BUILD_TIMEOUT_S = 3600.0

_STAMP = "batchfleet-environment.json"
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,511}")


def check_environment_name(name: str) -> str:
    """Return `name` where it is the name of an environment.

    Raises:
        ValueError: it is not; the text says what is expected.
    """
    locked = name.startswith(LOCKED) and is_sha256(name.removeprefix(LOCKED))
    if name and not locked and not _PATH.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is neither the absolute path of a virtual environment nor env:<sha256>"
        )
    return name


def python_of(name: str, cache: Path, version: str) -> Path:
    """The interpreter of the environment `name`, which is not the worker's own.

    `version` is the model's version that needs it, `model/version`.

    Raises:
        EnvironmentMissingError: it is not here; the text says what to do.
    """
    if name.startswith(LOCKED):
        return _locked_python(name, cache, version)
    folder = Path(name)
    python = folder / "bin" / "python"
    if not (folder / "pyvenv.cfg").is_file() or not python.exists():
        raise EnvironmentMissingError(
            f"it needs the virtual environment {name}, which is not on this machine; make it, then "
            "deploy again"
        )
    return python


def _locked_python(name: str, cache: Path, version: str) -> Path:
    folder = locked_folder(name, cache)
    if _stamp_of(folder) != _stamp_for(name):
        raise EnvironmentMissingError(
            f"it needs the environment {name[:16]}…, which was not built on this machine; run "
            f"`batchfleet models environment build {version}` there, then deploy again"
        )
    return folder / "bin" / "python"


def locked_folder(name: str, cache: Path) -> Path:
    """Where the environment of a lock file is built, for the kind of Python that runs this."""
    digest = name.removeprefix(LOCKED)
    return cache / "environments" / f"{digest}-{sys.implementation.cache_tag}"


def _stamp_for(name: str) -> dict[str, str]:
    tag = sys.implementation.cache_tag or ""
    return {"sha256": name.removeprefix(LOCKED), "python": tag}


def _stamp_of(folder: Path) -> object:
    try:
        found: object = orjson.loads((folder / _STAMP).read_bytes())
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
    if _stamp_of(folder) == _stamp_for(name):
        return folder
    entry = FileEntry(name.removeprefix(LOCKED), lock_file.stat().st_size)
    if not is_intact(lock_file, entry):
        raise StoreError(f"{lock_file} is not the lock file of {name}")
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], "venv could not make the environment")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--require-hashes"]
    pip += ["--only-binary", ":all:", "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*pip, "-r", str(lock_file)], "pip could not install what the lock file names")
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
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{complaint} within {BUILD_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise StoreError(f"{complaint}: {(done.stderr or done.stdout).strip()[-800:]}")
