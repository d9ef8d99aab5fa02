"""Packing requests for the ingress stream of one model."""

import asyncio
from collections.abc import Sized
from typing import Any, NamedTuple

from ..broker import requests
from ..broker.looping import pack
from ..wire.codec import MSGPACK, encode_body
from ..wire.errors import ErrorKind, RequestError, ServerError
from ..wire.inputs import encode_inputs
from ..wire.keys import ModelKeys
from ..wire.limits import INLINE_BYTES_DEFAULT, INPUTS_BYTES_MAX
from ..wire.reply import Reply
from ..wire.request import Request
from .blobs import points_to_blob, store_command
from .options import NO_OPTIONS, Options

# No name has such characters, so each is found in a packed command exactly once.
_ID_HERE = "<id>"
_INPUTS_HERE = b"<inputs>"


class PackedRequest(NamedTuple):
    """One request on its way: the command that adds it, and one that must have gone before.

    `store` puts inputs under the request's blob key that are too large for an entry.
    """

    keys: ModelKeys
    request_id: str
    add: bytes
    store: bytes | None = None


class Ingress:
    """What adds requests of one model: a command that is packed in advance but for its gaps."""

    def __init__(self, keys: ModelKeys, tenant: str) -> None:
        self.keys = keys
        self._tenant = tenant
        blank = self._pack(Request(_ID_HERE, _INPUTS_HERE, MSGPACK))
        self._before_id, rest = blank.split(_length(_ID_HERE) + _ID_HERE.encode())
        self._before_inputs, self._end = rest.split(_length(_INPUTS_HERE) + _INPUTS_HERE)

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
        raw_id = request_id.encode()
        add = b"".join(
            (
                self._before_id,
                _length(raw_id),
                raw_id,
                self._before_inputs,
                _length(encoded),
                encoded,
                self._end,
            )
        )
        return PackedRequest(self.keys, request_id, add)

    def pack_cancel(self, request_id: str) -> bytes:
        """What takes a request back."""
        return pack(requests.take_back(self.keys, self._tenant, request_id).parts)

    def _pack_large(self, request: Request) -> PackedRequest:
        stored = store_command(self.keys, self._tenant, request)
        add = self._pack(points_to_blob(request))
        return PackedRequest(self.keys, request.id, add, pack(stored.parts))

    def _pack(self, request: Request) -> bytes:
        return pack(requests.submit(self.keys, self._tenant, request).parts)


def _length(part: Sized) -> bytes:
    """What stands before a part of a packed command."""
    return b"$%d\r\n" % len(part)


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
