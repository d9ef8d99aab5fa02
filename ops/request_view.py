"""Everything the server still knows of one request."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..broker import fleet, requests
from ..broker.blocking import BlockingExecutor
from ..wire.codec import shallow_json
from ..wire.errors import ProtocolError
from ..wire.keys import ModelKeys, member
from ..wire.limits import JOURNAL_LINES_MAX
from ..wire.reply import Reply, decode_reply
from ..wire.states import State, stored_state
from .open_requests import OpenRequest, open_requests

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """What is known of a request.

    Attributes:
        model, tenant, id: which one.
        state: where it stands. One that no router has looked at yet is `unknown` too.
        deadline_ms: server time by which an open request is answered; None where it is not open.
        open: where it lies while it is open.
        reply: the reply while it is kept.
        journal: its line in the journal; answers are only sampled there, errors always are.
    """

    model: str
    tenant: str
    id: str
    state: State
    deadline_ms: float | None = None
    open: OpenRequest | None = None
    reply: Reply | None = None
    journal: Mapping[str, Any] | None = field(default=None)


def view_request(
    executor: BlockingExecutor, keys: ModelKeys, tenant: str, request_id: str
) -> RequestView:
    """Look a request up; changes nothing.

    Raises:
        ServerError: the server failed.
        ProtocolError: the reply key does not hold a reply.
    """
    deadline_ms, status, raw = executor.run_all(
        [
            requests.deadline(keys, tenant, request_id),
            requests.tombstone(keys, tenant, request_id),
            requests.reply(keys, tenant, request_id),
        ]
    )
    return RequestView(
        model=keys.model,
        tenant=tenant,
        id=request_id,
        state=stored_state(deadline_ms, status, raw),
        deadline_ms=deadline_ms,
        open=None if deadline_ms is None else _find_open(executor, keys, tenant, request_id),
        reply=None if raw is None else _read_reply(raw),
        journal=_find_line(executor, keys, tenant, request_id) if status is not None else None,
    )


def _read_reply(raw: bytes) -> Reply:
    try:
        return decode_reply(raw)
    except ValueError as error:
        raise ProtocolError(f"its reply key does not hold a reply: {error}") from error


def _find_open(
    executor: BlockingExecutor, keys: ModelKeys, tenant: str, request_id: str
) -> OpenRequest | None:
    deployment = executor.run(fleet.deployment(keys))
    found = [] if deployment is None else open_requests(executor, keys, deployment)
    wanted = member(tenant, request_id)
    return next((one for one in found if one.member == wanted), None)


def _find_line(
    executor: BlockingExecutor, keys: ModelKeys, tenant: str, request_id: str
) -> Mapping[str, Any] | None:
    lines = _journal(executor, keys)
    wanted = (tenant, request_id)
    return next((line for line in lines if (line.get("tenant"), line.get("id")) == wanted), None)


def _line_in(raw: bytes) -> Iterator[Mapping[str, Any]]:
    """The entry, unless somebody else wrote it."""
    with suppress(ValueError):
        line = shallow_json(raw)
        if isinstance(line, dict):
            yield line


def _journal(executor: BlockingExecutor, keys: ModelKeys) -> Iterator[Mapping[str, Any]]:
    """The journal's lines, the oldest first, read in pages."""
    start = "-"
    for _ in range(0, 2 * JOURNAL_LINES_MAX, _PAGE):
        entries = executor.run(requests.waiting(keys.journal, start, _PAGE))
        if not entries:
            return
        for _, flat in entries:
            if flat is not None and flat[0] == b"line":
                yield from _line_in(flat[1])
        start = "(" + entries[-1][0].decode()
