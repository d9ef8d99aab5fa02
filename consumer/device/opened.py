"""A version as it was opened: what its store and its manifest say of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...models.manifest import Golden
from ...models.measurements import Measurements
from ...models.model import Model
from ..link.protocol import Load
from .load_pace import LoadPace


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """A version fetched from the store: its class, its files, and what its manifest says.

    `size_bytes` is that of all files.
    """

    model_class: type[Model]
    folder: Path
    parameters: Mapping[str, Any]
    lineage: str
    size_bytes: int = 0
    golden: tuple[Golden, ...] = ()
    measurements: Measurements = field(default_factory=Measurements)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningOptions:
    """What the command line of a device process says about versions.

    Attributes:
        allow_code: the setting of that name.
        cache: a folder for copies; None is the default one.
        sources: a folder that a developer edits, see `CodePlace.shown_as`.
        own_store: refuse what others may have written in a local store, data as well.
    """

    allow_code: str = ""
    cache: Path | None = None
    sources: Path | None = None
    own_store: bool = False


Opener = Callable[[Load, LoadPace], VersionFiles]
