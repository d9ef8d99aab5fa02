"""Blobs: inputs too large for their entry, and outputs too large for their reply."""

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


def store_inputs(keys: ModelKeys, tenant: str, request: Request) -> tuple[Command[Any], Request]:
    """The command that stores the inputs of a request as a blob, and the request that refers to it.

    The blob expires once no worker can need it any more. A client does not know which time-out the
    deployment gives a request that names none, so it assumes the longest; `finish` removes the blob
    earlier.
    """
    timeout_ms = request.timeout_ms or TIMEOUT_MS_MAX
    ttl_ms = (request.delay_ms or 0) + timeout_ms + RESEND_WINDOW_MS + BLOB_MARGIN_MS
    size = len(request.inputs)
    store = requests.store_blob(keys, tenant, request.id, request.inputs, ttl_ms)
    return store, request._replace(inputs=b"", inputs_at=BLOB, inputs_bytes=size)


async def read_outputs(
    executor: AsyncExecutor, keys: ModelKeys, tenant: str, reply: Reply
) -> Reply:
    """The reply with its outputs, which are stored under a key of their own.

    Raises:
        CallerError: `unknown_request`, they were handed over already or have expired.
        ProtocolError: what is stored there are no outputs.
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
    """Whether blobs of a request that has this reply may still exist.

    `finish` removes the inputs; a request that was refused never came so far.
    """
    was_refused = reply.error is not None and not reply.receipt
    return was_refused or reply.outputs_at is not None
