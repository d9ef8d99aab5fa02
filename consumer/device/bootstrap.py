"""Starts a device process under the Python of another environment.

It is run by its path, alone:

    <python> -I bootstrap.py PACKAGE TAG PATHS MODULE [the flags of a device process]

The environment needs nothing of batchfleet: the package itself is loaded from PACKAGE, the folder
of the worker's own one, and the few packages that a device process needs are found in PATHS, the
worker's, where the environment lacks them and its Python is of the same kind (TAG). Nothing else of
the worker's packages can be seen, so that a version cannot lean on them by accident.
"""

import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_NAME = "batchfleet"
NEEDED = frozenset({"fsspec", "msgpack", "numpy", "orjson", "psutil", "structlog"})


class WorkersPackages(MetaPathFinder):
    """Finds the needed packages among the worker's, after everything of the environment."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of a needed package; parts of it are found by its own path."""
        if path is not None or fullname not in NEEDED:
            return None
        return PathFinder.find_spec(fullname, self._paths, target)


def load_package(folder: str) -> None:
    """Load batchfleet from this folder, even if the environment has a package of that name."""
    spec = importlib.util.spec_from_file_location(
        _NAME, Path(folder) / "__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)


def main(arguments: Sequence[str]) -> None:
    """Set up the imports, then run a module of the package."""
    package, tag, paths, module, *flags = arguments
    load_package(package)
    if tag == sys.implementation.cache_tag:
        sys.meta_path.append(WorkersPackages(paths.split(os.pathsep)))
    sys.argv[1:] = flags
    runpy.run_module(f"{_NAME}.{module}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
