"""Inputs too large for their entry, and outputs too large for their reply, under blob keys."""

from dataclasses import replace
from typing import Any

from ..broker import requests
from ..broker.commands import Command
from ..broker.interface import AsyncExecutor
from ..wire.codec import decode_outputs
from ..wire.errors import ErrorKind, ProtocolError, RequestError
from ..wire.keys import ModelKeys
from ..wire.limits import BLOB_MARGIN_MS, RESEND_WINDOW_MS, TIMEOUT_MS_MAX
from ..wire.references import BLOB
from ..wire.reply import Reply
from ..wire.request import Request


def blob_ttl_ms(timeout_ms: int | None, delay_ms: int | None) -> int:
    """How long inputs must lie there: until no worker can want them any more.

    A client does not know what time-out the deployment gives a request that names none, so that
    inputs lie for the longest there is; a finished request has its inputs removed.
    """
    return (delay_ms or 0) + (timeout_ms or TIMEOUT_MS_MAX) + RESEND_WINDOW_MS + BLOB_MARGIN_MS


def store_command(keys: ModelKeys, tenant: str, request: Request) -> Command[Any]:
    """What puts the inputs of a request under its blob key."""
    ttl_ms = blob_ttl_ms(request.timeout_ms, request.delay_ms)
    return requests.store_blob(keys, tenant, request.id, request.inputs, ttl_ms)


def points_to_blob(request: Request) -> Request:
    """The request without its inputs, saying that they lie under its blob key."""
    return request._replace(inputs=b"", inputs_at=BLOB, inputs_bytes=len(request.inputs))


async def with_outputs(
    executor: AsyncExecutor, keys: ModelKeys, tenant: str, reply: Reply
) -> Reply:
    """The reply with the outputs that lie under a key of their own.

    Raises:
        CallerError: `unknown_request`, they were handed over already or have expired.
        ProtocolError: what lies there are no outputs.
        ServerError: the server refused, or cannot be reached.
    """
    raw = await executor.run(requests.outputs_blob(keys, tenant, reply.id))
    if raw is None:
        text = f"the outputs of {reply.id} were already taken or have expired"
        raise RequestError.of(ErrorKind.UNKNOWN_REQUEST, text)
    try:
        return replace(reply, outputs=decode_outputs(raw))
    except ValueError as error:
        raise ProtocolError(f"the outputs of {reply.id}: {error}") from error


def may_have_blobs(reply: Reply) -> bool:
    """Whether something may still lie under the blob keys of a request that has this reply.

    `finish` removes the inputs; a request that was refused never came so far.
    """
    was_refused = reply.error is not None and not reply.receipt
    return was_refused or reply.outputs_at is not None
