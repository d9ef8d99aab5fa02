"""The open requests of a model: their places, and cancelling them.

A list is read in several steps while the fleet works: a request that moves meanwhile may be shown
where it was, or nowhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

from ..broker import fleet, listing, requests
from ..broker.commands import Command
from ..broker.ending import CANCELLED, bare_envelopes, end_requests
from ..broker.errors import NoGroupError
from ..broker.interface import Executor
from ..wire.deployment import Deployment
from ..wire.keys import ModelKeys, Queue, member, read_member, read_queue
from ..wire.limits import FINISH_ITEMS_MAX
from ..wire.states import State
from ..wire.work import WorkEntry, parse_work

T = TypeVar("T")
_PAGE = 64
_MEMBERS_PAGE = 1000


class Place(Enum):
    """Where an open request may be."""

    WAITING = "waiting"  # in a queue
    TAKEN = "taken"  # in a worker's hands
    PARKED = "parked"  # until a later time
    NOWHERE = "nowhere"  # its entry is lost, or on its way; it is answered by its deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """One open request.

    Attributes:
        tenant, id: which one.
        deadline_ms: server time by which it is answered.
        place: where it is.
        version, queue: version that will run it; priority and bucket, as `high:32`.
        worker: who has taken it; else empty.
        since_ms: server time at which it came there.
        until_ms: server time at which a parked one is moved to its queue.
        attempt: runs, including the current or next one.
        retries_left: how often it may still run again after it fails.
    """

    tenant: str
    id: str
    deadline_ms: float
    place: Place = Place.NOWHERE
    version: str = ""
    queue: str = ""
    worker: str = ""
    since_ms: float | None = None
    until_ms: float | None = None
    attempt: int = 1
    retries_left: int = 0

    @property
    def member(self) -> str:
        """Its name in `due`."""
        return member(self.tenant, self.id)

    def to_json(self) -> dict[str, Any]:
        """The map that `--json` prints."""
        return {**asdict(self), "place": self.place.value}


def open_requests(executor: Executor, keys: ModelKeys, deployment: Deployment) -> list[OpenRequest]:
    """All open requests of a model, the next due first.

    Raises:
        ServerError: the server failed.
    """
    deadlines = dict(_members(executor, keys))
    found: dict[str, OpenRequest] = {}
    # In the order in which requests move, so that those that move now are seen in their new place.
    for request in (*_parked(executor, keys), *_queued(executor, keys, deployment)):
        if request.member in deadlines:
            found[request.member] = request
    unseen = [name for name in deadlines if name not in found]
    still_open = set(unseen) - set(_closed(executor, keys, unseen))
    for name in still_open:
        if (named := read_member(name.encode())) is not None:
            tenant, request_id = named
            found[name] = OpenRequest(tenant=tenant, id=request_id, deadline_ms=deadlines[name])
    return [found[name] for name in deadlines if name in found]


def _members(executor: Executor, keys: ModelKeys) -> Iterator[tuple[str, float]]:
    start = 0
    while page := executor.run(listing.open_members(keys, start, _MEMBERS_PAGE)):
        yield from page
        start += len(page)


def _closed(executor: Executor, keys: ModelKeys, members: Sequence[str]) -> Iterator[str]:
    for at in range(0, len(members), _MEMBERS_PAGE):
        page = members[at : at + _MEMBERS_PAGE]
        yield from executor.run(requests.closed_among(keys, page))


def _parked(executor: Executor, keys: ModelKeys) -> Iterator[OpenRequest]:
    times: dict[str, float] = {}
    while page := executor.run(listing.parked_until(keys, len(times), _MEMBERS_PAGE)):
        times |= page
    for entry, flat in _entries(executor, keys.parked):
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        queue = read_queue(keys, fields.get(b"queue", b"").decode(errors="replace"))
        until_ms = times.get(entry.entry_id.decode())
        if queue is not None:
            yield _request(entry, queue, Place.PARKED, until_ms=until_ms)


def _queued(executor: Executor, keys: ModelKeys, deployment: Deployment) -> Iterator[OpenRequest]:
    for record in deployment.versions.values():
        for stream in fleet.queue_streams(keys, record):
            entries = [entry for entry, _ in _entries(executor, stream)]
            holders = _holders(executor, stream) if entries else {}
            queue = Queue.parse(stream)
            for entry in entries:
                holder = holders.get(entry.entry_id)
                if holder is None:
                    yield _request(entry, queue, Place.WAITING)
                else:
                    attempt = entry.attempt + holder.deliveries - 1
                    yield _request(entry, queue, Place.TAKEN, worker=holder.worker, attempt=attempt)


def _request(entry: WorkEntry, queue: Queue, place: Place, **facts: Any) -> OpenRequest:
    known = {"attempt": entry.attempt, **facts}
    return OpenRequest(
        tenant=entry.tenant,
        id=entry.id,
        deadline_ms=entry.deadline_ms,
        place=place,
        version=queue.version,
        queue=f"{queue.priority}:{queue.edge}",
        since_ms=entry.accepted_ms,
        retries_left=entry.retries,
        **known,
    )


def _entries(executor: Executor, stream: str) -> Iterator[tuple[WorkEntry, list[bytes]]]:
    """What a router wrote into a stream, without the inputs."""
    for entry_id, flat in _pages(
        executor, lambda start: listing.heads(stream, start, _PAGE), lambda entry: entry[0]
    ):
        try:
            yield parse_work(stream, entry_id, flat or ()), flat or []
        except ValueError:
            continue  # written by somebody else; it belongs to no request


def _holders(executor: Executor, stream: str) -> dict[bytes, listing.Taken]:
    try:
        taken = _pages(
            executor,
            lambda start: listing.taken(stream, start, _PAGE),
            lambda entry: entry.entry_id,
        )
        return {entry.entry_id: entry for entry in taken}
    except NoGroupError:
        return {}  # the stream was just removed


def _pages(
    executor: Executor, page_from: Callable[[str], Command[list[T]]], id_of: Callable[[T], bytes]
) -> Iterator[T]:
    start = "-"
    while page := executor.run(page_from(start)):
        yield from page
        start = "(" + id_of(page[-1]).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What became of a request that was to be cancelled. `was_open`: it is cancelled now.

    `state` is the one that it is in: `unknown` where nothing is known of such a request.
    """

    tenant: str
    id: str
    was_open: bool
    state: State


def cancel(
    executor: Executor,
    keys: ModelKeys,
    deployment: Deployment,
    named: Sequence[tuple[str, str]],
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[Cancelled]:
    """Answer `cancelled` to requests, each a tenant and an id, as far as they are open.

    A router's copy of this is `cancel` in an ingress entry; the first one writes the reply.

    Args:
        executor: a connection.
        keys: those of the model.
        deployment: its deploy record.
        named: the requests.
        on_progress: called with the number of further ones that are done.

    Raises:
        ServerError: the server failed; cancelling again is harmless.
    """
    outcomes: list[Cancelled] = []
    for at in range(0, len(named), FINISH_ITEMS_MAX):
        batch = named[at : at + FINISH_ITEMS_MAX]
        envelopes = bare_envelopes(keys.model, batch)
        ended = end_requests(executor, keys, deployment, envelopes, CANCELLED)
        states = executor.run_all(
            [requests.tombstone(keys, tenant, request_id) for tenant, request_id in batch]
        )
        outcomes += [
            Cancelled(
                tenant=tenant,
                id=request_id,
                was_open=outcome is requests.Finished.ANSWERED,
                state=State.UNKNOWN if status is None else State(status),
            )
            for (tenant, request_id), outcome, status in zip(batch, ended, states, strict=True)
        ]
        on_progress(len(batch))
    return outcomes
