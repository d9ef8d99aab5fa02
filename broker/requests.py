"""Commands on requests: submit, accept, take, finish, look up."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..wire import limits
from ..wire.deployment import AUTO_ROWS, Stamp, VersionRecord
from ..wire.errors import ErrorKind
from ..wire.keys import WORK_GROUP, ModelKeys, member
from ..wire.request import Request
from ..wire.stats import Counts, outcome_field
from .commands import Command, Part, as_is, call, plain, waiting_command

Fields = list[bytes]
Entry = tuple[bytes, Fields | None]


class Accepted(Enum):
    """What became of one item of an accept call; `lua/accept.lua` explains them."""

    OK = b"OK"
    DUP = b"DUP"
    REFUSED = b"REFUSED"
    BUSY = b"BUSY"
    LATE = b"LATE"
    CLOCK = b"CLOCK"
    STALE = b"STALE"
    GONE = b"GONE"


class Finished(Enum):
    """What became of one item of a finish call."""

    ANSWERED = b"ANSWERED"
    CLOSED = b"CLOSED"
    NOT_MINE = b"NOT_MINE"
    KEPT = b"KEPT"


_ACCEPTED = {outcome.value: outcome for outcome in Accepted}
_FINISHED = {outcome.value: outcome for outcome in Finished}


class AcceptItem(NamedTuple):
    """One ingress entry for `accept`.

    `queue` and `bell` are empty where `refusal` (an encoded reply) is set. Large `inputs` are
    copied from the ingress entry inside the server; they are empty where `inputs_at` is set.
    `result_ttl_ms` is set where another than the model's default was asked for. `counter` is the
    field of the stats (`wire.stats.outcome_field`) that counts the refusal; empty = none.
    """

    entry_id: bytes
    tenant: str
    request_id: str
    timeout_ms: int = 0
    queue: str = ""
    bell: str = ""
    fields: Sequence[bytes] = ()
    inputs: bytes = b""
    refusal: bytes = b""
    inputs_at: str = ""
    delay_ms: int = 0
    result_ttl_ms: int = 0
    counter: str = ""


class FinishItem(NamedTuple):
    """One request for `finish`.

    `stream` and `entry_id` are empty where no work entry is settled (expiry, cancel). The
    tombstone must outlive every copy of the entry that may still be on its way. Where `accept`
    noted another `result_ttl_ms`, that holds, and the tombstone follows. `outputs` are
    written under a key of their own, to which the reply points; `has_blob` has the inputs' key
    removed; `is_dead` has the entry kept among the dead letters. `counts` is by how much the fields
    of the stats grow with it (`wire.stats.counts_of`).
    """

    stream: str
    entry_id: bytes
    tenant: str
    request_id: str
    reply: bytes
    status: str
    result_ttl_ms: int
    tombstone_ttl_ms: int
    journal: bytes = b""
    outputs: bytes = b""
    has_blob: bool = False
    is_dead: bool = False
    counts: Counts = ()

    @property
    def size(self) -> int:
        """Bytes that the server is sent for it, about."""
        return len(self.reply) + len(self.outputs)


def submit(keys: ModelKeys, tenant: str, request: Request) -> Command[bytes | None]:
    """Add a request to its ingress stream; None where model or tenant is not deployed."""
    return plain(as_is, "XADD", keys.ingress(tenant), "NOMKSTREAM", "*", *request.to_fields())


def cancel_entry(keys: ModelKeys, tenant: str, request_id: str) -> Command[bytes | None]:
    """Ask the routers to cancel a request; None where model or tenant is not deployed."""
    ingress = keys.ingress(tenant)
    return plain(as_is, "XADD", ingress, "NOMKSTREAM", "*", "id", request_id, "cancel", "1")


def store_blob(
    keys: ModelKeys, tenant: str, request_id: str, inputs: bytes, ttl_ms: int
) -> Command[Any]:
    """Put inputs under the blob key of a request, before it is submitted."""
    return plain(as_is, "SET", keys.blob(tenant, request_id), inputs, "PX", ttl_ms)


def blob(keys: ModelKeys, tenant: str, request_id: str, most: int) -> Command[bytes]:
    """Inputs under a blob key; empty where they are gone, cut after `most` bytes and one."""
    return plain(as_is, "GETRANGE", keys.blob(tenant, request_id), 0, most)


def outputs_blob(keys: ModelKeys, tenant: str, request_id: str) -> Command[bytes | None]:
    """Outputs that were too large for their reply; None where they are gone."""
    return plain(as_is, "GET", keys.outputs_blob(tenant, request_id))


def forget_blob(keys: ModelKeys, tenant: str, request_id: str) -> Command[int]:
    """Remove the inputs under a request's blob key."""
    return plain(int, "UNLINK", keys.blob(tenant, request_id))


# What lists and refusals show of an entry: so many fields, and none that is longer.
HEAD_FIELDS_MAX = 100
HEAD_FIELD_BYTES_MAX = 16 * 1024


def read_entries(raw: Any) -> list[Entry]:
    """The answer to a range of a stream."""
    return [(entry[0], entry[1]) for entry in raw]


def read_streams(raw: Any) -> list[tuple[str, list[Entry]]]:
    """The answer to a read of several streams."""
    if not raw:
        return []
    return [
        (stream.decode(), [(entry[0], entry[1]) for entry in entries]) for stream, entries in raw
    ]


CLOCK_TOLERANCE_MS = 5_000
# A request is answered soon after its deadline, unless all routers are away.
_ASKED_TTLS_MS = limits.OPEN_MS_MAX + limits.TIMEOUT_MS_MAX


def accept(
    keys: ModelKeys, ingress: str, stamp: Stamp, backlog: int, items: Sequence[AcceptItem]
) -> Command[tuple[int, list[Accepted]]]:
    """Open requests, or write their refusals; at most `ACCEPT_ITEMS_MAX` items.

    `stamp` is that of the deploy record by which the items were made.

    Returns the number of open requests and one outcome per item.

    Raises (when run):
        StaleRecordError: the record has changed; nothing was done.
    """
    queues: dict[str, int] = {}
    script_keys: list[Part] = [
        ingress, keys.due, keys.later, keys.parked, keys.deploy, keys.ttl, keys.stats
    ]  # fmt: skip
    for item in items:
        if item.queue and item.queue not in queues:
            queues[item.queue] = len(queues) + 1
            script_keys += (item.queue, item.bell)
    args: list[Part] = [
        backlog, len(queues), len(items), limits.REFUSAL_TTL_MS, CLOCK_TOLERANCE_MS, *stamp,
        _ASKED_TTLS_MS,
    ]  # fmt: skip
    for item in items:
        tenant, request_id = item.tenant, item.request_id
        script_keys += (keys.tombstone(tenant, request_id), keys.reply(tenant, request_id))
        copied = len(item.inputs) > limits.COPY_IN_SERVER_BYTES
        fields: tuple[Part, ...] = (item.counter,) if item.counter else ()
        if not item.refusal:
            inputs = (b"inputs", b"" if copied else item.inputs)
            if item.inputs_at:
                inputs = (b"inputs_at", item.inputs_at.encode())
            fields = (*item.fields, b"deadline", b"", *inputs)
        args += (
            item.entry_id,
            member(tenant, request_id),
            queues.get(item.queue, 0),
            item.timeout_ms,
            item.refusal,
            keys.channel(tenant, request_id) if item.refusal else "",
            item.delay_ms,
            item.result_ttl_ms,
            len(fields),
            *fields,
        )
    return call("accept", script_keys, args, _read_accepted)


def _read_accepted(raw: Any) -> tuple[int, list[Accepted]]:
    return raw[0], [_ACCEPTED[outcome] for outcome in raw[1]]


TAKE_BYTES_MAX = 4 * 1024 * 1024
_OVERDUE = ErrorKind.DEADLINE_EXCEEDED


def take(
    keys: ModelKeys,
    worker: str,
    stamp: Stamp,
    record: VersionRecord,
    streams: Sequence[str],
    room: int,
) -> Command[list[tuple[str, list[Entry]]]]:
    """Take waiting entries of one version, about `room` rows, in the order of `streams`.

    One request counts for half a batch at most, however many rows it has. `stamp` is that of the
    deploy record by which the worker takes.

    Raises (when run):
        FencedError: the worker is not a live one.
        StaleRecordError: the deploy record has changed; nothing was taken.
    """
    bell, overdue = keys.bell(record.version), outcome_field(record.version, _OVERDUE)
    script_keys = [keys.workers, keys.due, bell, keys.deploy, keys.stats, *streams]
    args = (worker, room, TAKE_BYTES_MAX, weight_max(record), *stamp, overdue)
    return call("take", script_keys, args, read_streams)


def weight_max(record: VersionRecord) -> int:
    """Rows that one request counts for at most against a worker's room: half a batch.

    Of the smallest where the size is `auto`.
    """
    return max(1, (record.limits.max_batch_size or AUTO_ROWS) // 2)


def reread_work(stream: str, worker: str, after: str, count: int) -> Command[list[Entry]]:
    """Entries after id `after` that are pending for this worker: handed out, and not ended."""
    group: tuple[Part, ...] = ("GROUP", WORK_GROUP, worker, "COUNT", count)
    read = lambda raw: read_streams(raw)[0][1] if raw else []  # noqa: E731 - a reader
    return plain(read, "XREADGROUP", *group, "STREAMS", stream, after)


def drop_work(stream: str, entry_ids: Sequence[bytes]) -> list[Command[Any]]:
    """End work entries that no router wrote."""
    acknowledge = plain(as_is, "XACK", stream, WORK_GROUP, *entry_ids)
    return [acknowledge, plain(as_is, "XDEL", stream, *entry_ids)]


class Recovered(NamedTuple):
    """An entry taken over from a lost worker.

    `inside`: it was in the lost worker's device process, which may have died of it.
    """

    entry_id: bytes
    attempt: int
    inside: bool
    fields: Fields


def recover(
    keys: ModelKeys, worker: str, stamp: Stamp, gone: str, stream: str, count: int
) -> Command[list[Recovered]]:
    """Take over entries that a lost worker had taken from one stream, in their place.

    Raises (when run):
        FencedError: the worker is not a live one.
        StaleRecordError: the deploy record is another than that of `stamp`; nothing was taken.
    """
    script_keys = [keys.workers, keys.due, keys.lost, keys.worker(gone), stream, keys.deploy]
    return call("recover", script_keys, [worker, gone, count, *stamp], _read_recovered)


def _read_recovered(raw: Sequence[Any]) -> list[Recovered]:
    return [Recovered(item[0], int(item[1]), item[2] == 1, item[3]) for item in raw]


def wait_for_bell(bells: Sequence[str], timeout_s: float) -> Command[bool]:
    """Wait for a wake-up token; the answer says whether one came."""
    return waiting_command(lambda raw: raw is not None, timeout_s, "BLPOP", *bells, timeout_s)


def finish(keys: ModelKeys, worker: str, items: Sequence[FinishItem]) -> Command[list[Finished]]:
    """End requests; see `split_finish` for how many fit one call. `worker` may be empty."""
    streams: dict[str, int] = {}
    script_keys: list[Part] = [keys.due, keys.journal, keys.dead, keys.ttl, keys.stats]
    for item in items:
        if item.stream and item.stream not in streams:
            streams[item.stream] = len(streams) + 1
            script_keys.append(item.stream)
    args: list[Part] = [
        worker, len(streams), len(items), limits.JOURNAL_LINES_MAX, limits.NOTIFY_BYTES_MAX,
        limits.DEAD_LETTERS_MAX, limits.DEAD_BYTES_MAX, limits.RESULT_TTL_MS_MAX,
        limits.OPEN_MS_MAX, *_growth(items),
    ]  # fmt: skip
    for item in items:
        tenant, request_id = item.tenant, item.request_id
        script_keys += (keys.tombstone(tenant, request_id), keys.reply(tenant, request_id))
        args += (
            streams.get(item.stream, 0),
            item.entry_id,
            member(tenant, request_id),
            item.reply,
            item.result_ttl_ms,
            item.tombstone_ttl_ms,
            item.status,
            keys.channel(tenant, request_id),
            request_id,
            item.journal,
            int(item.is_dead),
            " ".join([f"{name} {by}" for name, by in item.counts]),
        )
    _add_blobs(keys, items, script_keys, args)
    return call("finish", script_keys, args, lambda raw: [_FINISHED[outcome] for outcome in raw])


def _growth(items: Sequence[FinishItem]) -> list[Part]:
    """How many fields of the stats grow, and by how much each, where all items are answered."""
    sums: dict[str, int] = {}
    for item in items:
        for name, by in item.counts:
            sums[name] = sums.get(name, 0) + by
    return [len(sums), *(part for pair in sums.items() for part in pair)]


def _add_blobs(
    keys: ModelKeys, items: Sequence[FinishItem], script_keys: list[Part], args: list[Part]
) -> None:
    for at, item in enumerate(items, start=1):
        if item.has_blob:
            script_keys.append(keys.blob(item.tenant, item.request_id))
            args += (at, "", 0)
        if item.outputs:
            script_keys.append(keys.outputs_blob(item.tenant, item.request_id))
            args += (at, item.outputs, item.result_ttl_ms + limits.BLOB_MARGIN_MS)


def split_finish(items: Iterable[FinishItem]) -> list[list[FinishItem]]:
    """Cut items into calls of at most 64 items and 256 kB; a larger reply goes alone."""
    calls: list[list[FinishItem]] = []
    size = 0
    for item in items:
        full = calls and (
            len(calls[-1]) == limits.FINISH_ITEMS_MAX or size + item.size > limits.FINISH_BYTES_MAX
        )
        if not calls or full:
            calls.append([])
            size = 0
        calls[-1].append(item)
        size += item.size
    return calls


def overdue(keys: ModelKeys, count: int) -> Command[list[bytes]]:
    """Open requests past their deadline, as members of `due` (`wire.keys.read_member`)."""
    return call("overdue", [keys.due], [count], as_is)


def forget_members(keys: ModelKeys, members: Sequence[bytes]) -> Command[int]:
    """Drop members of `due` that are no requests."""
    return plain(int, "ZREM", keys.due, *members)


def open_requests(keys: ModelKeys) -> Command[int]:
    """How many requests are open."""
    return plain(int, "ZCARD", keys.due)


def closed_among(keys: ModelKeys, members: Sequence[str]) -> Command[list[str]]:
    """Which of these members of `due` are not open any more."""
    read = lambda raw: [m for m, score in zip(members, raw, strict=True) if score is None]  # noqa: E731 - a reader
    return plain(read, "ZMSCORE", keys.due, *members)


def deadline(keys: ModelKeys, tenant: str, request_id: str) -> Command[float | None]:
    """The deadline (server time, ms) of an open request; None where it is not open."""
    read = lambda raw: None if raw is None else float(raw)  # noqa: E731 - a reader, like the others
    return plain(read, "ZSCORE", keys.due, member(tenant, request_id))


def tombstone(keys: ModelKeys, tenant: str, request_id: str) -> Command[str | None]:
    """The status that a finished request ended in; None where none is remembered."""
    read = lambda raw: None if raw is None else raw.decode()  # noqa: E731 - a reader
    return plain(read, "GET", keys.tombstone(tenant, request_id))


def reply(keys: ModelKeys, tenant: str, request_id: str) -> Command[bytes | None]:
    """The terminal item under the reply key; it stays there."""
    read = lambda raw: raw[0] if raw else None  # noqa: E731 - a reader
    return plain(read, "LRANGE", keys.reply(tenant, request_id), 0, 0)


def forget_replies(
    keys: ModelKeys, tenant: str, request_ids: Sequence[str], with_blobs: Sequence[str] = ()
) -> list[Command[int]]:
    """Remove replies that were handed over, and the blobs of some of these requests.

    Apart, since a user may have a right to each and none to both in one command.
    """
    blobs: list[Part] = []
    for request_id in with_blobs:
        blobs += (keys.blob(tenant, request_id), keys.outputs_blob(tenant, request_id))
    replies = (keys.reply(tenant, request_id) for request_id in request_ids)
    commands = [plain(int, "UNLINK", *replies)]
    return [*commands, plain(int, "UNLINK", *blobs)] if blobs else commands


def waiting(stream: str, start: str, count: int) -> Command[list[Entry]]:
    """Entries of a work stream from id `start` on, without taking them."""
    return plain(read_entries, "XRANGE", stream, start, "+", "COUNT", count)


def stream_length(stream: str) -> Command[int]:
    """Entries in a stream, waiting and taken."""
    return plain(int, "XLEN", stream)
