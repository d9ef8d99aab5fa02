"""Admission: decides into which queue an ingress entry goes, or why it is refused. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.requests import AcceptItem
from ..wire.codec import JSON
from ..wire.deployment import VersionRecord
from ..wire.errors import ErrorBody, ErrorKind, RequestError
from ..wire.references import BLOB, require_allowed
from ..wire.reply import Envelope, encode_error
from ..wire.request import Request, find_id, parse_request, salvage
from ..wire.stats import outcome_field
from ..wire.work import work_fields
from .view import ModelView


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides beside the entry itself.

    Attributes:
        model: the model's record as last read.
        abandoned: versions that no live worker has served for too long.
        memory_full: the server has no room for new work.
        retry_after_ms: when those that are refused for now may retry.
    """

    model: ModelView
    abandoned: frozenset[str] = frozenset()
    memory_full: bool = False
    retry_after_ms: int = 1000


def admit(
    entry_id: bytes, flat: Sequence[bytes], tenant: str, situation: Situation
) -> AcceptItem | None:
    """Accept or refuse an entry; None where nobody can be answered since it has no id."""
    version = ""
    try:
        request = parse_request(flat, situation.model.deployment.limits.max_request_bytes)
        record = _choose_version(request, situation)
        version = record.version
        _require_served(request, record, situation)
        return _place(entry_id, request, tenant, situation.model, record)
    except RequestError as error:
        request_id = find_id(flat)
        if request_id is None:
            return None
        return refuse(
            entry_id,
            envelope_of(request_id, tenant, situation.model.keys.model, flat),
            ErrorBody.from_error(error),
            outcome_field(version, error.kind) if version else "",
        )


def refuse(entry_id: bytes, envelope: Envelope, error: ErrorBody, counter: str = "") -> AcceptItem:
    """The item that writes a refusal; `counter` is set where it concerns one version."""
    refusal = encode_error(envelope, error)
    return AcceptItem(entry_id, envelope.tenant, envelope.id, refusal=refusal, counter=counter)


def envelope_of(request_id: str, tenant: str, model: str, flat: Sequence[bytes]) -> Envelope:
    """An envelope for an entry that is refused, from the fields that can be read."""
    found = salvage(flat)
    return Envelope(
        id=request_id,
        tenant=tenant,
        accept=found.get("accept") or found.get("content_type") or JSON,
        model=model,
        meta=found.get("meta"),
        traceparent=found.get("traceparent"),
    )


def _choose_version(request: Request, situation: Situation) -> VersionRecord:
    deployment = situation.model.deployment
    if deployment.intake == "refuse":
        raise RequestError.of(
            ErrorKind.UNAVAILABLE,
            f"{deployment.model} is paused and refuses new requests",
            retry_after_ms=situation.retry_after_ms,
        )
    version = request.version or deployment.version_for(request.id)
    record = deployment.versions.get(version)
    if record is None:
        known = ", ".join(sorted(deployment.versions))
        raise RequestError.of(
            ErrorKind.UNKNOWN_VERSION,
            f"{deployment.model} has no version {version}; it has {known}",
        )
    if situation.memory_full:
        raise RequestError.of(
            ErrorKind.BUSY, "the server's memory is full", retry_after_ms=situation.retry_after_ms
        )
    return record


def _require_served(request: Request, record: VersionRecord, situation: Situation) -> None:
    """Go on where the version can serve a request; what it refuses counts for the version."""
    if record.version in situation.abandoned:
        raise RequestError.of(
            ErrorKind.NO_WORKER,
            f"no live worker serves {situation.model.keys.model}/{record.version}",
            retry_after_ms=situation.retry_after_ms,
        )
    if request.inputs_at not in (None, BLOB):
        require_allowed(request.inputs_at, record.limits.input_prefixes)
    rows_max = record.limits.max_rows_per_request
    if request.rows is not None and request.rows > rows_max:
        raise RequestError.of(
            ErrorKind.TOO_MANY_ROWS, f"{request.rows} rows; {rows_max} are allowed"
        )


def _place(
    entry_id: bytes, request: Request, tenant: str, model: ModelView, record: VersionRecord
) -> AcceptItem:
    keys = model.keys
    if request.inputs_at is not None and request.inputs_bytes is None:
        # Their size is unknown: assume the largest.
        request = request._replace(inputs_bytes=record.limits.max_request_bytes)
    size = request.inputs_bytes if request.inputs_at is not None else len(request.inputs)
    length = request.length or record.length_of(size or 0, request.rows or 1)
    # By place: names would double the cost of what is done for each request.
    return AcceptItem(
        entry_id,
        tenant,
        request.id,
        request.timeout_ms or record.limits.timeout_ms,
        keys.queue(record.version, request.priority, record.bucket_of(length)),
        keys.bell(record.version),
        work_fields(request, tenant),
        request.inputs,
        b"",
        request.inputs_at or "",
        request.delay_ms or 0,
        request.result_ttl_ms or _own_ttl_ms(model, record),
    )


def _own_ttl_ms(model: ModelView, record: VersionRecord) -> int:
    """The version's TTL of replies; 0 where it is that of the stable one, which is the default."""
    own = record.limits.result_ttl_ms
    return 0 if own == model.deployment.limits.result_ttl_ms else own
