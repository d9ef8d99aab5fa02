"""Moving: requests that named no version follow the deploy record while they wait.

After a switch, or once a canary has gone back, some lie in queues of a version that is not meant
for them any more. Any router places them anew; what a worker has taken, it answers.
"""

from collections.abc import Sequence

from ..broker import fleet, moving
from ..broker.interface import Executor
from ..broker.moving import MOVE_ITEMS_MAX, Moved, MoveItem, WaitingEntry
from ..wire.deployment import Deployment
from ..wire.keys import ModelKeys, Queue, read_queue
from ..wire.request import FIELD_RANGES
from .view import ModelView


def move_waiting(executor: Executor, view: ModelView) -> int:
    """Place anew what waits for another version than the record in force says; returns how many.

    Raises:
        StaleRecordError: the record has changed; read it again.
    """
    streams = [
        stream
        for record in view.deployment.versions.values()
        if not view.deployment.is_default(record.version)
        for stream in fleet.queue_streams(view.keys, record)
    ]
    first_pages = executor.run_all([moving.waiting(stream) for stream in streams])
    return sum(
        _move_queue(executor, view, stream, page)
        for stream, page in zip(streams, first_pages, strict=True)
        if page
    )


def _move_queue(
    executor: Executor, view: ModelView, stream: str, entries: list[WaitingEntry]
) -> int:
    queue = read_queue(view.keys, stream)
    assert queue is not None, stream
    moved = 0
    while entries:
        placed = [place_anew(entry, queue, view.keys, view.deployment) for entry in entries]
        items = [item for item in placed if item is not None]
        outcomes = _move(executor, view, stream, items)
        moved += outcomes.count(Moved.MOVED)
        if Moved.LATER not in outcomes and len(entries) < MOVE_ITEMS_MAX:
            break
        # What follows the last one that had its turn; one always has.
        had_turn = [item for item, o in zip(items, outcomes, strict=True) if o is not Moved.LATER]
        last = had_turn[-1] if Moved.LATER in outcomes else entries[-1]
        entries = executor.run(moving.waiting(stream, last.entry_id))
    return moved


def _move(
    executor: Executor, view: ModelView, stream: str, items: Sequence[MoveItem]
) -> list[Moved]:
    if not items:
        return []
    return executor.run(moving.move(view.keys, view.deployment.stamp, stream, items))


def place_anew(
    entry: WaitingEntry, queue: Queue, keys: ModelKeys, deployment: Deployment
) -> MoveItem | None:
    """Where a waiting entry goes under this record; None where its caller named the version. Pure.

    Its length is estimated as at its admission. Where that does not explain the bucket in which it
    lies, its caller had said it, and the edge of the bucket stands for it. (An entry that no router
    wrote ends where it lies, wherever it is said to go.)
    """
    values = dict(zip(entry.fields[::2], entry.fields[1::2], strict=False))
    if b"version" in values:
        return None
    request_id = values.get(b"id", b"").decode(errors="replace")
    record = deployment.versions[deployment.version_for(request_id)]
    size = _number(values, "inputs_bytes") if b"inputs_at" in values else entry.inputs_bytes
    rows, was = _number(values, "rows"), deployment.versions[queue.version]
    is_explained = was.bucket_of(was.length_of(size, rows)) == queue.edge
    length = record.length_of(size, rows) if is_explained else queue.edge
    target = keys.queue(record.version, queue.priority, record.bucket_of(length))
    return MoveItem(entry.entry_id, target, keys.bell(record.version))


def _number(values: dict[bytes, bytes], name: str) -> int:
    """A number of the entry; 1 where it says none that a router writes."""
    text = values.get(name.encode(), b"").decode(errors="replace")
    return int(FIELD_RANGES[name].read(text) or 1)
