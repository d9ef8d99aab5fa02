"""batchfleet: a fleet of batching model workers behind Redis.

The public names are loaded on first use, so that ``import batchfleet`` costs nothing and brings
neither redis nor torch into a process that does not need them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import testing
    from .models.engines import Engine
    from .models.model import Model, PredictContext, Prepared, Row
    from .producer.async_client import AsyncClient
    from .producer.client import Client
    from .producer.result import Result
    from .wire.errors import (
        BatchfleetError,
        CallerError,
        ErrorKind,
        FleetError,
        ModelError,
        RequestError,
    )

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": ".producer.async_client",
    "Client": ".producer.client",
    "Result": ".producer.result",
    "Engine": ".models.engines",
    "Model": ".models.model",
    "Prepared": ".models.model",
    "PredictContext": ".models.model",
    "Row": ".models.model",
    "BatchfleetError": ".wire.errors",
    "ErrorKind": ".wire.errors",
    "RequestError": ".wire.errors",
    "CallerError": ".wire.errors",
    "FleetError": ".wire.errors",
    "ModelError": ".wire.errors",
}

__all__ = [
    "AsyncClient",
    "BatchfleetError",
    "CallerError",
    "Client",
    "Engine",
    "ErrorKind",
    "FleetError",
    "Model",
    "ModelError",
    "PredictContext",
    "Prepared",
    "RequestError",
    "Result",
    "Row",
    "__version__",
    "testing",
]


def __dir__() -> list[str]:
    """The public names too that nobody has asked for yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "testing":
        return import_module(".testing", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
