"""A version's modules in processes that its own code starts.

A function of a `model.py` travels to a child of `multiprocessing` by the name of its module, which
nothing but a finder of this process knows (`code_loading.py`). A child that is forked has the
finder; one that starts afresh (`spawn`, `forkserver`) gets it here, before anything that it was
given is looked up, and checks the source files as this process did.
"""

import sys
from collections.abc import Callable
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any

from ..wire.errors import StoreError

_PACKAGE = __name__.partition(".")[0]
_KEY = "batchfleet_versions"

Adopt = Callable[..., Any]
"""Makes a version's modules importable in this process; its arguments say which."""


class ForChildren:
    """What children are handed of the versions here: who adopts them, and with which arguments.

    Every process object of `multiprocessing` takes along a copy of its parent's configuration,
    and that is unpacked in the child in front of what the child shall run.
    """

    def __init__(self, adopt: Adopt) -> None:
        self._adopt = adopt
        self._versions: dict[str, tuple[Any, ...]] = {}

    def add(self, package: str, arguments: tuple[Any, ...]) -> None:
        """Hand one more version on."""
        self._versions[package] = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        """How a child gets it.

        Raises:
            StoreError: a child could not import batchfleet itself.
        """
        if not _is_importable():
            raise StoreError(
                "a version with an environment of its own cannot start processes with spawn or "
                'forkserver; use multiprocessing.get_context("fork"), or threads'
            )
        return _adopt_all, (self._adopt, tuple(self._versions.items()))


def hand_to_children(package: str, adopt: Adopt, arguments: tuple[Any, ...]) -> None:
    """Have children that start afresh find this package of a version."""
    # The one thing of `multiprocessing` that reaches every kind of child; it is not documented,
    # and a test holds it.
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
    config.setdefault(_KEY, ForChildren(adopt)).add(package, arguments)


def _adopt_all(adopt: Adopt, versions: tuple[tuple[str, tuple[Any, ...]], ...]) -> ForChildren:
    handed = ForChildren(adopt)
    for package, arguments in versions:
        adopt(package, *arguments)
        handed.add(package, arguments)
    return handed


def _is_importable() -> bool:
    """Whether a process with our `sys.path` finds this very package under its name."""
    here = Path(__file__).resolve().parents[1] / "__init__.py"
    for finder in sys.meta_path:
        spec = finder.find_spec(_PACKAGE, None)
        if spec is not None:
            return spec.origin is not None and Path(spec.origin).resolve() == here.resolve()
    return False
