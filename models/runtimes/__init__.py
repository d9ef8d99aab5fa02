"""The built-in runtimes by name. A runtime is imported when a version needs it, not before."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from ...wire.errors import StoreError
from ...wire.names import shown
from ..model import Model


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where a runtime's class is, and which modules beside its own decide what it answers.

    Modules are named relative to `models/runtimes`.
    """

    module: str
    class_name: str
    helpers: tuple[str, ...] = ()


RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        "echo": Runtime("echo", "Echo", ("faults",)),
        "noop": Runtime("noop", "Noop"),
        "device_stub": Runtime("device_stub", "DeviceStub", ("echo", "faults")),
        "torch_encoder": Runtime("torch_encoder", "TorchEncoder", ("bert", "packing")),
    }
)


def resolve(runtime: str) -> type[Model]:
    """The class of a runtime.

    Raises:
        StoreError: there is no such runtime, or a package that it needs is not installed.
    """
    row = _row(runtime)
    try:
        module = import_module(f".{row.module}", __name__)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"runtime {runtime!r} needs {error.name!r}: pip install 'batchfleet[worker]'"
        ) from error
    found = getattr(module, row.class_name)
    assert isinstance(found, type)
    assert issubclass(found, Model)
    return found


def code_sha256(runtime: str) -> str:
    """Digest of the source of a runtime; needs none of the packages that the runtime imports.

    Raises:
        StoreError: there is no such runtime.
    """
    row = _row(runtime)
    digest = hashlib.sha256()
    for module in (row.module, *row.helpers):
        digest.update(hashlib.sha256(_source(module).read_bytes()).digest())
    return digest.hexdigest()


def _row(runtime: str) -> Runtime:
    row = RUNTIMES.get(runtime)
    if row is None:
        known = ", ".join(sorted(RUNTIMES))
        raise StoreError(f"there is no runtime {shown(runtime)}; there are: {known}")
    return row


def _source(module: str) -> Path:
    return Path(__file__).with_name(f"{module}.py")
