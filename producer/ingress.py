"""Packing requests for the ingress stream of one model."""

import asyncio
from typing import Any, NamedTuple

from ..broker import requests
from ..broker.packing import Template, pack
from ..wire.codec import MSGPACK, encode_body
from ..wire.errors import ErrorKind, RequestError, ServerError
from ..wire.inputs import encode_inputs
from ..wire.keys import ModelKeys
from ..wire.limits import INLINE_BYTES_DEFAULT, INPUTS_BYTES_MAX
from ..wire.reply import Reply
from ..wire.request import Request
from .blobs import store_inputs
from .options import NO_OPTIONS, Options

# No name has such characters, so each occurs in a packed command exactly once.
_ID_GAP = "<id>"
_INPUTS_GAP = b"<inputs>"


class PackedRequest(NamedTuple):
    """One request on its way: the command that adds it, and one that must have gone before.

    `store` puts inputs under the request's blob key that are too large for an entry.
    """

    keys: ModelKeys
    request_id: str
    add: bytes
    store: bytes | None = None


class Ingress:
    """Packs requests of one model; those without options from a template."""

    def __init__(self, keys: ModelKeys, tenant: str) -> None:
        self.keys = keys
        self._tenant = tenant
        blank = requests.submit(keys, tenant, Request(_ID_GAP, _INPUTS_GAP, MSGPACK))
        self._template = Template(blank.parts, (_ID_GAP.encode(), _INPUTS_GAP))

    def pack(self, options: Options, request_id: str, inputs: Any) -> PackedRequest:
        """What adds this request.

        Raises:
            CallerError: `bad_inputs` where `inputs` cannot be put on the wire; `too_large`.
        """
        body, rows = encode_inputs(inputs)
        encoded = encode_body(body, MSGPACK)
        if len(encoded) > INPUTS_BYTES_MAX:
            raise RequestError.of(
                ErrorKind.TOO_LARGE,
                f"inputs are {len(encoded)} bytes; {INPUTS_BYTES_MAX} are allowed in one request",
            )
        if len(encoded) > INLINE_BYTES_DEFAULT:
            return self._pack_large(options.to_request(request_id, encoded, rows))
        if options is not NO_OPTIONS or rows > 1:
            request = options.to_request(request_id, encoded, rows)
            return PackedRequest(self.keys, request_id, self._pack(request))
        add = self._template.fill(request_id.encode(), encoded)
        return PackedRequest(self.keys, request_id, add)

    def pack_cancel(self, request_id: str) -> bytes:
        """The command that cancels a request."""
        return pack(requests.cancel_entry(self.keys, self._tenant, request_id).parts)

    def _pack_large(self, request: Request) -> PackedRequest:
        store, pointer = store_inputs(self.keys, self._tenant, request)
        return PackedRequest(self.keys, request.id, self._pack(pointer), pack(store.parts))

    def _pack(self, request: Request) -> bytes:
        return pack(requests.submit(self.keys, self._tenant, request).parts)


class NotAddedError(Exception):
    """The server did not say that it added a request.

    `answer` is the error that came instead; None = there is no such stream.
    """

    def __init__(self, answer: ServerError | None) -> None:
        super().__init__(answer)
        self.answer = answer


def check_added(future: "asyncio.Future[Reply]", answer: Any) -> None:
    """Look at the answer to an XADD; its caller waits for the reply, so only a failure matters."""
    if type(answer) is not bytes and not future.done():
        future.set_exception(NotAddedError(answer))
