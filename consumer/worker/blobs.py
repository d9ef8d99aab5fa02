"""Inputs that lie under blob keys: read by the thread that took their entries, right after them.

The device process has no connection to the server, and the device thread must not wait for one;
intake and recovery have connections of their own and hold no lock while they read.
"""

from collections.abc import Callable, Sequence

from ...broker import requests
from ...broker.interface import Executor
from ...wire.errors import ErrorBody, ErrorKind
from ...wire.keys import ModelKeys
from ...wire.references import BLOB
from ..batching.state import Lane, TakenEntry
from .worker import OfferedLane

# A caller may understate the size of a blob: so many are read at once, whatever they claim.
_AT_ONCE = 4

Take = Callable[[Lane, Sequence[TakenEntry]], None]


def hand_over(
    executor: Executor,
    keys: ModelKeys,
    offered: OfferedLane,
    entries: Sequence[TakenEntry],
    take: Take,
) -> None:
    """Give entries to a unit by its `take`; those whose inputs are still to be read come after.

    Raises:
        ServerError: the server failed; what was not handed over stays pending.
    """
    unit, lane, _ = offered
    blobs = [taken for taken in entries if _lies_in_blob(taken)]
    if len(blobs) < len(entries):
        take(lane, [taken for taken in entries if not _lies_in_blob(taken)])
    for at in range(0, len(blobs), _AT_ONCE):
        portion = blobs[at : at + _AT_ONCE]
        found, refused = _read(executor, keys, portion, lane.record.limits.max_request_bytes)
        take(lane, found)
        unit.refuse(lane, refused)


def _lies_in_blob(taken: TakenEntry) -> bool:
    return taken.entry.inputs_at == BLOB and not taken.entry.inputs


def _read(
    executor: Executor, keys: ModelKeys, entries: Sequence[TakenEntry], most: int
) -> tuple[list[TakenEntry], list[tuple[TakenEntry, ErrorBody]]]:
    """Entries with their inputs, up to `most` bytes each; those that have none, with the reason."""
    found: list[TakenEntry] = []
    refused: list[tuple[TakenEntry, ErrorBody]] = []
    commands = [requests.blob(keys, taken.entry.tenant, taken.entry.id, most) for taken in entries]
    for taken, inputs in zip(entries, executor.run_all(commands), strict=True):
        if not inputs:
            error = ErrorBody(ErrorKind.PAYLOAD_MISSING, "the blob key does not exist")
            refused.append((taken, error))
        elif len(inputs) > most:
            error = ErrorBody(ErrorKind.TOO_LARGE, f"inputs have more than {most} bytes")
            refused.append((taken, error))
        else:
            found.append(taken._replace(entry=taken.entry._replace(inputs=inputs)))
    return found, refused
