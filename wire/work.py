"""The work entry: what a router writes for a worker into the stream of a bucket.

`id` and `tenant` come first because the scripts read them by place; `accept` adds `deadline` and
`inputs` (or `inputs_at`) at the end. Everything else is written only where it differs from the
default, since each waiting request costs memory in the server.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import limits
from .codec import JSON
from .numbers import Range
from .request import FIELD_RANGES, FIELDS, Request

_DIGITS_MAX = 15
_CARRIED = [field.name for field in FIELDS.values() if field.is_carried]
_PLACES = [(name.encode(), Request._fields.index(name)) for name in _CARRIED]


class WorkEntry(NamedTuple):
    """One accepted request in a worker's hands.

    `deadline_ms` is server time; it is compared with the server's clock only. `entry_id` starts
    with the server time at which it came into its stream. `inputs` are empty as long as they lie at
    `inputs_at`. `version` is set where the caller named it, `retries` says how many are left, and
    `attempt` counts the runs, this one included.
    """

    stream: str
    entry_id: bytes
    id: str
    tenant: str
    inputs: bytes
    deadline_ms: int
    content_type: str = JSON
    accept: str = JSON
    outputs: str | None = None
    parameters: bytes | None = None
    result_ttl_ms: int | None = None
    timeout_ms: int | None = None
    rows: int = 1
    truncate: str | None = None
    meta: str | None = None
    traceparent: str | None = None
    inputs_at: str | None = None
    inputs_bytes: int | None = None
    version: str | None = None
    retries: int = 0
    attempt: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def accepted_ms(self) -> int:
        """Server time at which the request was accepted."""
        return int(self.entry_id.partition(b"-")[0])

    @property
    def is_last_run(self) -> bool:
        """Whether the request does not run again where this run fails."""
        return self.retries <= 0

    @property
    def next_run(self) -> tuple[int, int]:
        """The attempt that follows where this one fails, and the retries that are left then."""
        return self.attempt + 1, max(0, self.retries - 1)

    def to_request(self, request_id: str, priority: str) -> Request:
        """The request that it was made of, under another id, with all its retries."""
        carried = {name: getattr(self, name) for name in _CARRIED}
        carried["accept"] = None if self.accept == self.content_type else self.accept
        carried["rows"] = self.rows if self.rows > 1 else None
        carried["inputs_bytes"] = self.inputs_bytes if self.inputs_at is not None else None
        carried["retries"] = (self.attempt - 1 + self.retries) or None
        return Request(
            id=request_id,
            inputs=self.inputs,
            content_type=self.content_type,
            priority=priority,
            inputs_at=self.inputs_at,
            **carried,
        )


def work_fields(request: Request, tenant: str) -> list[bytes]:
    """The flat field list of a work entry without what `accept` adds."""
    flat = [b"id", request.id.encode(), b"tenant", tenant.encode()]
    if request.content_type != JSON:
        flat += (b"content_type", request.content_type.encode())
    for name, place in _PLACES:
        value = request[place]
        if value is not None:
            flat += (name, value if isinstance(value, bytes) else str(value).encode())
    if request.warnings:
        flat += (b"warnings", "\n".join(request.warnings).encode())
    return flat


def _whole(allowed: Range) -> Callable[[bytes], int]:
    lowest, highest = allowed.lowest, allowed.highest

    def read(raw: bytes) -> int:
        # `int` alone takes '-40', ' 5 ' and '1_000'.
        if not raw.isdigit() or len(raw) > _DIGITS_MAX or not lowest <= int(raw) <= highest:
            raise ValueError(f"a number of a work entry must be {allowed.words}")
        return int(raw)

    return read


def _lines(raw: bytes) -> tuple[str, ...]:
    return tuple(raw.decode().split("\n"))


_READ: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("id", "tenant", "content_type", "inputs_at", *_CARRIED), bytes.decode),
    **{name: _whole(FIELD_RANGES[name]) for name in _CARRIED if name in FIELD_RANGES},
    "result_ttl_ms": _whole(Range(1, limits.RESULT_TTL_MS_MAX)),
    "inputs_bytes": _whole(Range(0, limits.INPUTS_BYTES_MAX)),
    "attempt": _whole(Range(1, 1_000_000)),
    **dict.fromkeys(("inputs", "parameters"), bytes),
    "warnings": _lines,
}
_READERS = {name.encode(): (name, read) for name, read in _READ.items()}
_READERS[b"deadline"] = ("deadline_ms", _whole(Range(0, 10**_DIGITS_MAX - 1)))


def parse_work(stream: str, entry_id: bytes, flat: Sequence[bytes]) -> WorkEntry:
    """Read a work entry as `take` returns it; unknown fields are passed over.

    Numbers are whole and within the range of the contract.

    Raises:
        ValueError: not written by `accept`; a foreign hand was at the stream.
    """
    values: dict[str, Any] = {"stream": stream, "entry_id": entry_id}
    for at in range(0, len(flat), 2):
        known = _READERS.get(flat[at])
        if known is not None:
            values[known[0]] = known[1](flat[at + 1])
    if "inputs_at" in values:
        values.setdefault("inputs", b"")
    values.setdefault("accept", values.get("content_type", JSON))
    try:
        return WorkEntry(**values)
    except TypeError as missing:
        raise ValueError("a work entry has an id, a tenant, inputs and a deadline") from missing
