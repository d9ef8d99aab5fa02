"""Sweeping: answers for requests that no worker will answer, and queues for those whose time came.

Any router does it; none needs a lock. The gate inside `finish` makes it safe for all to sweep at
once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..broker import fleet, later, requests
from ..broker.ending import bare_envelopes, end_requests
from ..broker.interface import Executor
from ..broker.later import Promoted, RipeItem
from ..broker.requests import Finished
from ..wire.deployment import Deployment
from ..wire.errors import ErrorBody, ErrorKind
from ..wire.keys import ModelKeys, read_member, read_queue
from ..wire.limits import FINISH_ITEMS_MAX
from ..wire.names import is_name_bytes
from ..wire.reply import Envelope
from .admission import envelope_of
from .view import ModelView

_START = "-"
_PROMOTE_COUNT = 64
_GONE = ErrorBody(ErrorKind.UNKNOWN_VERSION, "its version was undeployed in the meantime")
_OVERDUE = ErrorBody(ErrorKind.DEADLINE_EXCEEDED, "the deadline passed before the reply was ready")


def sweep_overdue(executor: Executor, view: ModelView, dropped: Callable[[str, int], None]) -> int:
    """Answer the requests of a model that are past their deadline; returns how many.

    Entries that somebody else wrote are dropped and reported to `dropped`.
    """
    keys = view.keys
    answered = 0
    while True:
        overdue = executor.run(requests.overdue(keys, FINISH_ITEMS_MAX))
        named = [found for raw in overdue if (found := read_member(raw)) is not None]
        if len(named) < len(overdue):
            foreign = [raw for raw in overdue if read_member(raw) is None]
            executor.run(requests.forget_members(keys, foreign))
            dropped("opened_by_others", len(foreign))
        answered += _end(executor, view, bare_envelopes(keys.model, named), _OVERDUE)
        if len(overdue) < FINISH_ITEMS_MAX:
            return answered


def answer_abandoned(executor: Executor, view: ModelView, version: str) -> int:
    """Answer `no_worker` to what waits for a version that nobody serves; returns how many."""
    keys = view.keys
    error = ErrorBody(
        ErrorKind.NO_WORKER, f"no live worker serves {keys.model}/{version}", retry_after_ms=1000
    )
    record = view.deployment.versions[version]
    answered = 0
    for stream in fleet.queue_streams(keys, record):
        for entries in _pages(executor, stream):
            answered += _end(executor, view, _envelopes(keys, entries), error, version)
    return answered


def _end(
    executor: Executor,
    view: ModelView,
    envelopes: Sequence[Envelope],
    error: ErrorBody,
    version: str = "",
) -> int:
    outcomes = end_requests(executor, view.keys, view.deployment, envelopes, error, version)
    return outcomes.count(Finished.ANSWERED)


def _envelopes(keys: ModelKeys, entries: Iterable[requests.Entry]) -> list[Envelope]:
    """Of work entries, as far as a router wrote them."""
    return [
        envelope_of(fields[1].decode(), fields[3].decode(), keys.model, fields)
        for _, fields in entries
        if fields is not None and fields[::2][:2] == [b"id", b"tenant"]
        if is_name_bytes(fields[1]) and is_name_bytes(fields[3])
    ]


def promote_ripe(executor: Executor, view: ModelView, dropped: Callable[[str, int], None]) -> int:
    """Move parked requests whose time has come to their queues; returns how many were moved.

    Parked entries that somebody else wrote are dropped and reported to `dropped`, by kind.
    """
    moved = 0
    while True:
        ripe = executor.run(later.ripe(view.keys, _PROMOTE_COUNT))
        items = [item for item in ripe if is_ours(item, view.keys)]
        if len(items) < len(ripe):
            foreign = [item.parked_id for item in ripe if item not in items]
            executor.run_all(later.forget(view.keys, foreign))
            dropped("parked_by_others", len(foreign))
        # The streams of a version that was withdrawn may be there still, but nobody reads them;
        # those of one that was replaced are read for requests that name it.
        placed = [item for item in items if has_place(item, view.keys, view.deployment)]
        outcomes = _promote(executor, view, placed)
        stale = [item for item in items if item not in placed]
        stale += [
            item
            for item, outcome in zip(placed, outcomes, strict=True)
            if outcome is Promoted.STALE
        ]
        again = _promote_elsewhere(executor, view, stale)
        moved += outcomes.count(Promoted.MOVED) + again.count(Promoted.MOVED)
        # Where not even the other places are there, the next sweep finds them mended.
        if len(ripe) < _PROMOTE_COUNT or Promoted.STALE in again:
            return moved


def is_ours(item: RipeItem, keys: ModelKeys) -> bool:
    """Whether a router or a worker parked it: its queue and bell are keys of the model.

    True for a body that is lost: there is nothing to place, and `promote` forgets it.
    """
    if not item.queue:
        return not (item.bell or item.request_id)
    queue = read_queue(keys, item.queue)
    return queue is not None and item.bell == keys.bell(queue.version)


def has_place(item: RipeItem, keys: ModelKeys, deployment: Deployment) -> bool:
    """Whether a parked request still belongs to the version whose queue it would enter."""
    queue = read_queue(keys, item.queue)
    if queue is None:
        return True
    return queue.version in deployment.versions and (
        bool(item.version) or deployment.is_default(queue.version)
    )


def _promote(executor: Executor, view: ModelView, items: Sequence[RipeItem]) -> list[Promoted]:
    if not items:
        return []
    return executor.run(later.promote(view.keys, view.deployment.stamp, items))


def _promote_elsewhere(
    executor: Executor, view: ModelView, stale: Sequence[RipeItem]
) -> list[Promoted]:
    """Move requests whose queue is gone, or not meant for them any more.

    Those that insist on a version that is gone get an error, and their entries, closed now, end.
    """
    keys, deployment = view.keys, view.deployment
    placed = {item: other for item in stale if (other := elsewhere(item, keys, deployment))}
    homeless = [item for item in stale if item not in placed]
    named = [(item.tenant, item.request_id) for item in homeless]
    _end(executor, view, bare_envelopes(keys.model, named), _GONE)
    return _promote(executor, view, [*placed.values(), *homeless])


def elsewhere(item: RipeItem, keys: ModelKeys, deployment: Deployment) -> RipeItem | None:
    """Another place for a parked request; None where the version that it names is gone."""
    record = deployment.versions.get(item.version or deployment.version_for(item.request_id))
    queue = read_queue(keys, item.queue)
    if record is None or queue is None:
        return None
    other = keys.queue(record.version, queue.priority, record.bucket_of(queue.edge))
    return item._replace(queue=other, bell=keys.bell(record.version))


def remove_buckets(executor: Executor, view: ModelView) -> int:
    """Remove the streams of buckets that have drained; returns of how many."""
    commands = [
        fleet.remove_bucket(view.keys, record.version, edge)
        for record in view.deployment.versions.values()
        for edge in record.draining
    ]
    return sum(executor.run(command) for command in commands)


def _pages(executor: Executor, stream: str) -> Iterator[list[requests.Entry]]:
    start = _START
    while True:
        entries = executor.run(requests.waiting(stream, start, FINISH_ITEMS_MAX))
        if entries:
            yield entries
        if len(entries) < FINISH_ITEMS_MAX:
            return
        start = "(" + entries[-1][0].decode()
