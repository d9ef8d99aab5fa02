"""Inputs that lie under blob keys: read by the intake thread, right after their entries.

The device process has no connection to the server, and the device thread must not wait for one;
the intake thread has a connection of its own and holds no lock while it reads.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ...broker import requests
from ...broker.interface import Executor
from ...wire.errors import ErrorBody, ErrorKind
from ...wire.keys import ModelKeys
from ...wire.references import BLOB
from ...wire.work import WorkEntry
from ..batching.state import HeldRequest, Placement
from ..link.protocol import Failure

T = TypeVar("T")
Placed = tuple[Placement, WorkEntry]

# A caller may understate the size of a blob: so many are read at once, whatever they claim.
_AT_ONCE = 4


class BlobsRead(NamedTuple):
    """Entries with their inputs, and those that have none, with the reason."""

    found: list[Placed]
    refused: list[tuple[Placed, ErrorBody]]


def lies_in_blob(entry: WorkEntry) -> bool:
    """Whether the inputs of an entry are still to be read from its blob key."""
    return entry.inputs_at == BLOB and not entry.inputs


def read_blobs(
    executor: Executor, keys: ModelKeys, entries: Sequence[Placed], most: int
) -> BlobsRead:
    """Read the inputs of a few entries, up to `most` bytes each.

    Raises:
        ServerError: the server failed; the entries stay pending.
    """
    fetched = BlobsRead([], [])
    commands = [requests.blob(keys, entry.tenant, entry.id, most) for _, entry in entries]
    for (placement, entry), inputs in zip(entries, executor.run_all(commands), strict=True):
        placed = (placement, entry._replace(inputs=inputs))
        if not inputs:
            error = ErrorBody(ErrorKind.PAYLOAD_MISSING, "nothing lies under the blob key")
        elif len(inputs) > most:
            error = ErrorBody(ErrorKind.TOO_LARGE, f"inputs are over {most} bytes")
        else:
            fetched.found.append(placed)
            continue
        fetched.refused.append(((placement, entry), error))
    return fetched


def failures_of(
    taken: Sequence[HeldRequest], refused: Sequence[tuple[Placed, ErrorBody]]
) -> list[Failure]:
    """The failures of refused entries that were taken in this order."""
    return [
        Failure(held.number, error.kind.code, error.message, [])
        for held, (_, error) in zip(taken, refused, strict=True)
    ]


def in_portions(entries: Sequence[T]) -> list[Sequence[T]]:
    """Cut entries into portions that may be read at once."""
    return [list(entries[at : at + _AT_ONCE]) for at in range(0, len(entries), _AT_ONCE)]
