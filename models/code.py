"""Where the class of a version with the runtime `python` is.

In a manifest it is one object of two keys:

    {"source": "model.py", "class": "Sentiment"}
    {"source": "ours-1.2-py3-none-any.whl", "class": "ours.sentiment:Sentiment"}
    {"source": "ours==1.2", "class": "ours.sentiment:Sentiment"}

a source file of the version, a wheel of the version, or a distribution that the operator of a
worker has installed.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..wire.names import shown

RUNTIME = "python"
# Whatever a Python could run of a version's files.
CODE_SUFFIXES = (".py", ".whl")

_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,123}\.py")
_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,123}\.whl")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}==[A-Za-z0-9][A-Za-z0-9.+!_-]{0,62}")
_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_CLASS_OF_MODULE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,15}:[A-Za-z_][A-Za-z0-9_]{0,127}"
)


class CodeKind(Enum):
    """In which of three forms the code comes."""

    FILE = "file"
    WHEEL = "wheel"
    DISTRIBUTION = "distribution"


@dataclass(frozen=True, slots=True)
class ModelCode:
    """Where a class is; `source` and `class_path` as in the manifest, already checked."""

    source: str
    class_path: str

    @property
    def kind(self) -> CodeKind:
        """The form that `source` spells."""
        if "==" in self.source:
            return CodeKind.DISTRIBUTION
        return CodeKind.FILE if self.source.endswith(".py") else CodeKind.WHEEL

    @property
    def module(self) -> str:
        """Dotted name of the module; for a file, its name without the suffix."""
        if self.kind is CodeKind.FILE:
            return self.source.removesuffix(".py")
        return self.class_path.partition(":")[0]

    @property
    def class_name(self) -> str:
        """Name of the class in its module."""
        return self.class_path.rpartition(":")[2]

    @property
    def distribution(self) -> tuple[str, str]:
        """Name and version of the distribution."""
        name, _, version = self.source.partition("==")
        return name, version

    @property
    def sha256(self) -> str:
        """Digest of the reference itself; files have digests of their own in the manifest."""
        return hashlib.sha256(f"{self.source}\n{self.class_path}".encode()).hexdigest()

    def to_wire(self) -> dict[str, str]:
        """The object that goes into a manifest."""
        return {"source": self.source, "class": self.class_path}


def read_code(value: Any) -> ModelCode:
    """Read the object of a manifest.

    Raises:
        ValueError: not such an object; the text says what is expected.
    """
    if not isinstance(value, dict) or set(value) != {"source", "class"}:
        raise ValueError("must have exactly source and class")
    source, class_path = value["source"], value["class"]
    if not isinstance(source, str) or not isinstance(class_path, str):
        raise ValueError("source and class must be text")  # noqa: TRY004 (a fault of the document)
    if not any(form.fullmatch(source) for form in (_FILE, _WHEEL, _DISTRIBUTION)):
        raise ValueError(f"source {shown(source)} is not a model.py, a wheel or name==version")
    if source.endswith(".py") and "==" not in source:
        if not _CLASS.fullmatch(class_path):
            raise ValueError(f"class {shown(class_path)} must be the name of a class in {source}")
    elif not _CLASS_OF_MODULE.fullmatch(class_path):
        raise ValueError(f"class {shown(class_path)} must be written package.module:Class")
    return ModelCode(source, class_path)


def plain_distribution(name: str) -> str:
    """A distribution's name in the one spelling that all its spellings mean."""
    return re.sub(r"[-_.]+", "-", name).lower()


def code_files(names: Iterable[str]) -> list[str]:
    """Those of a version's files that Python could be made to run."""
    return sorted(name for name in names if name.endswith(CODE_SUFFIXES))
