"""Dead letters: requests that were given up. Listing and replaying them.

A letter holds the fields of the work entry, the stream that it lay in, and the reply.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..broker import dead, fleet, listing, requests
from ..broker.interface import Executor
from ..producer.blobs import store_inputs
from ..wire.errors import BatchfleetError, ErrorKind, RequestError
from ..wire.keys import ModelKeys, Queue, member
from ..wire.limits import INLINE_BYTES_DEFAULT, NAME_BYTES_MAX
from ..wire.names import shown
from ..wire.references import BLOB
from ..wire.reply import Reply, decode_reply
from ..wire.request import Request
from ..wire.work import WorkEntry, parse_work

_PAGE = 64
_REPLAYS_MAX = 1000
_REPLAYED = re.compile(r"(.+)\.r([0-9]{1,4})")


class NotReplayableError(BatchfleetError):
    """A dead letter cannot be sent again; the text says why."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `entry.inputs` are empty where only the head was read.

    Attributes:
        entry_id: its place among the dead letters.
        entry: the request as a worker had it.
        queue: where it lay: its version and priority.
        reply: what the caller was answered.
    """

    entry_id: bytes
    entry: WorkEntry
    queue: Queue
    reply: Reply

    @property
    def written_ms(self) -> int:
        """Server time at which the request was given up."""
        return int(self.entry_id.partition(b"-")[0])

    @property
    def attempts(self) -> int:
        """How often it ran."""
        return int(self.reply.receipt.get("attempt", self.entry.attempt))

    def to_json(self) -> dict[str, Any]:
        """What a list of letters shows of it."""
        error = self.reply.error or {}
        return {
            "letter": self.entry_id.decode(),
            "written_ms": self.written_ms,
            "tenant": self.entry.tenant,
            "id": self.entry.id,
            "version": self.queue.version,
            "priority": self.queue.priority,
            "error": error.get("name", self.reply.status),
            "message": str(error.get("message", "")),
            "attempts": self.attempts,
        }


def read_letter(entry_id: bytes, flat: list[bytes]) -> Letter:
    """Read one entry of the dead letters.

    Raises:
        ValueError: `finish` did not write it.
    """
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if b"stream" not in fields or b"reply" not in fields:
        raise ValueError("a dead letter needs a stream and a reply")
    stream = fields[b"stream"].decode()
    entry, reply = parse_work(stream, entry_id, flat), decode_reply(fields[b"reply"])
    return Letter(entry_id, entry, Queue.parse(stream), reply)


def letters(executor: Executor, keys: ModelKeys) -> Iterator[Letter]:
    """The heads of all dead letters of a model, the newest first; other entries are skipped."""
    before = "+"
    while page := executor.run(listing.latest_heads(keys.dead, before, _PAGE)):
        for entry_id, flat in page:
            try:
                yield read_letter(entry_id, flat or [])
            except ValueError:
                continue  # written by somebody else
        before = "(" + page[-1][0].decode()


def find_letter(executor: Executor, keys: ModelKeys, tenant: str, request_id: str) -> Letter:
    """The newest dead letter of a request, with its inputs.

    Raises:
        CallerError: `unknown_request`, there is none.
    """
    wanted = (tenant, request_id)
    heads = letters(executor, keys)
    head = next((one for one in heads if (one.entry.tenant, one.entry.id) == wanted), None)
    found = None if head is None else full_letter(executor, keys, head)
    if found is None:
        text = f"{keys.model} has no dead letter {shown(request_id)} of tenant {tenant}"
        raise RequestError.of(ErrorKind.UNKNOWN_REQUEST, text)
    return found


def full_letter(executor: Executor, keys: ModelKeys, head: Letter) -> Letter | None:
    """A letter with its inputs; None where it is gone."""
    entries = executor.run(dead.letter(keys, head.entry_id))
    return read_letter(entries[0][0], entries[0][1] or []) if entries else None


def replay(executor: Executor, keys: ModelKeys, letter: Letter, used: set[str]) -> str:
    """Send a dead letter again under a new id, which is returned; the letter is gone then.

    A new id because the old one would join the answer that it had. `used` are new requests, as
    members of `due`, that no router may have seen yet; this one is added.

    Raises:
        NotReplayableError: its inputs are gone; it was replayed already; the model is not deployed.
        ServerError: the server failed; the letter is still there, or the request is on its way.
    """
    entry = letter.entry
    new_id = _free_id(executor, keys, letter, used)
    request = as_request(letter, new_id)
    has_blob = len(request.inputs) > INLINE_BYTES_DEFAULT
    if has_blob:
        store, request = store_inputs(keys, entry.tenant, request)
        executor.run(store)
    fields = request.to_fields()
    added = executor.run(dead.replay(keys, entry.tenant, letter.entry_id, fields))
    if isinstance(added, bytes):
        used.add(member(entry.tenant, new_id))
        return new_id
    if has_blob:
        executor.run(requests.forget_blob(keys, entry.tenant, new_id))
    reason = (
        f"{keys.model} is not deployed for tenant {entry.tenant}"
        if added is None
        else "it was already replayed or deleted"
    )
    raise NotReplayableError(f"{entry.id} was not replayed: {reason}")


def as_request(letter: Letter, new_id: str) -> Request:
    """The request that a letter was, under another id; it runs as often as at first.

    Raises:
        NotReplayableError: its inputs are gone.
    """
    entry = letter.entry
    if entry.inputs_at == BLOB or not (entry.inputs or entry.inputs_at):
        raise NotReplayableError(f"{entry.id} cannot be replayed: its inputs have expired")
    return entry.to_request(new_id, letter.queue.priority)


def replay_ids(old_id: str) -> Iterator[str]:
    """Names for a request that is sent again: `<id>.r1`, `<id>.r2` …, after those that it had."""
    known = _REPLAYED.fullmatch(old_id)
    base, first = (known[1], int(known[2]) + 1) if known else (old_id, 1)
    for number in range(first, first + _REPLAYS_MAX):
        suffix = f".r{number}"
        # A name must not hold two points in a row.
        yield base[: NAME_BYTES_MAX - len(suffix)].rstrip(".") + suffix


def _free_id(executor: Executor, keys: ModelKeys, letter: Letter, used: set[str]) -> str:
    tenant = letter.entry.tenant
    for name in replay_ids(letter.entry.id):
        traces = executor.run_all(
            [
                requests.deadline(keys, tenant, name),
                requests.tombstone(keys, tenant, name),
                requests.reply(keys, tenant, name),
            ]
        )
        if member(tenant, name) not in used and traces == [None, None, None]:
            return name
    raise NotReplayableError(f"{letter.entry.id} was already replayed {_REPLAYS_MAX} times")


def purge_letters(executor: Executor, keys: ModelKeys, older_than_s: float = 0) -> int:
    """Delete dead letters that are at least so old; returns how many."""
    now_ms = executor.run(fleet.server_time())
    # What was written in this very millisecond is older than nothing, too.
    before_ms = int(now_ms - 1000 * older_than_s) + (1 if not older_than_s else 0)
    return executor.run(dead.trim_letters(keys, before_ms))
