"""Ending open requests without their entries: by their deadline, by a cancel, for lack of a worker.

Any number of programs may do it at once: `finish` answers each request once.
"""

from collections.abc import Iterable, Sequence

from ..wire.codec import JSON
from ..wire.deployment import Deployment
from ..wire.errors import ErrorBody, ErrorKind
from ..wire.keys import ModelKeys
from ..wire.limits import RESEND_WINDOW_MS
from ..wire.reply import Envelope, encode_error, status_of
from ..wire.stats import counts_of
from . import requests
from .interface import Executor
from .requests import Finished, FinishItem

CANCELLED = ErrorBody(ErrorKind.CANCELLED, "the caller cancelled the request")


def bare_envelopes(model: str, named: Iterable[tuple[str, str]]) -> list[Envelope]:
    """Envelopes of requests of which only tenant and id are known."""
    return [
        Envelope(id=request_id, tenant=tenant, accept=JSON, model=model)
        for tenant, request_id in named
    ]


def end_requests(
    executor: Executor,
    keys: ModelKeys,
    deployment: Deployment,
    envelopes: Sequence[Envelope],
    error: ErrorBody,
    version: str = "",
) -> list[Finished]:
    """Answer requests with an error: `ANSWERED` for each that was open, `CLOSED` for others.

    `version` is the one that the error is counted for; empty = none.

    Raises:
        ServerError: the server failed; ending them again does no harm.
    """
    counts = counts_of(version, error.kind) if version else ()
    result_ttl_ms = deployment.limits.result_ttl_ms
    items = [
        FinishItem(
            stream="",
            entry_id=b"",
            tenant=envelope.tenant,
            request_id=envelope.id,
            reply=encode_error(envelope, error),
            status=status_of(error.kind).value,
            result_ttl_ms=result_ttl_ms,
            # `finish` adds what is left until the deadline.
            tombstone_ttl_ms=result_ttl_ms + RESEND_WINDOW_MS,
            has_blob=True,  # perhaps: it is removed unseen
            counts=counts,
        )
        for envelope in envelopes
    ]
    return [
        outcome
        for batch in requests.split_finish(items)
        for outcome in executor.run(requests.finish(keys, "", batch))
    ]
