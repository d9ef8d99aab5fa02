"""What a request came with. Rows are made of it as often as they are needed, each of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...models.model import Row
from ...models.stacking import digest
from ...wire.codec import shallow_json
from ...wire.tensors import Column
from .snapshot import snapshot


class Inputs(Protocol):
    """Where rows come from. No code of a model's sees it, only rows that share nothing with it."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    @property
    def kind(self) -> int:
        """A digest of the names and datatypes that came."""

    def row(self, at: int) -> Row:
        """A new row, in writable memory of its own."""

    def view(self, at: int) -> Row:
        """A row that shares memory with the inputs, for who only reads it."""

    def parameters(self) -> dict[str, Any]:
        """The caller's `parameters`, decoded again each time."""


@dataclass(slots=True)
class RequestInputs:
    """The decoded inputs of a request. `raw_parameters` are a JSON object, or empty."""

    columns: Mapping[str, Column]
    count: int
    raw_parameters: bytes | None
    truncate: str

    @property
    def kind(self) -> int:
        """See `Inputs`."""
        kind = [
            (name, type(column[0]) if isinstance(column, list) else column.dtype.char)
            for name, column in self.columns.items()
        ]
        return digest(tuple(kind))

    def row(self, at: int) -> Row:
        """See `Inputs`."""
        row = Row(None, self.parameters(), self.truncate)
        for name, column in self.columns.items():
            row[name] = column[at] if isinstance(column, list) else column[at, ...].copy()
        return row

    def view(self, at: int) -> Row:
        """See `Inputs`; each array loses its first axis, and stays an array."""
        row = Row(None, None, self.truncate)
        for name, column in self.columns.items():
            row[name] = column[at] if isinstance(column, list) else column[at, ...]
        return row

    def parameters(self) -> dict[str, Any]:
        """See `Inputs`."""
        return shallow_json(self.raw_parameters) if self.raw_parameters else {}


@dataclass(frozen=True, slots=True)
class ExampleInputs:
    """One example of a model's, `count` times."""

    example: Row
    count: int
    truncate: str
    kind: int = 0

    def row(self, _: int) -> Row:
        """See `Inputs`."""
        row: Row = snapshot(self.example)
        row.truncate = self.truncate
        return row

    view = row

    def parameters(self) -> dict[str, Any]:
        """See `Inputs`."""
        return dict(snapshot(self.example.parameters))
