"""Packing requests for the ingress stream of one model."""

from collections.abc import Sized
from typing import Any

from ..broker import requests
from ..broker.looping import pack
from ..wire.codec import MSGPACK, encode_body
from ..wire.keys import ModelKeys
from ..wire.request import Request
from ..wire.tensors import encode_inputs
from .options import NO_OPTIONS, Options

# No name has such characters, so each is found in a packed command exactly once.
_ID_HERE = "<id>"
_INPUTS_HERE = b"<inputs>"


class Ingress:
    """What adds requests of one model: a command that is packed in advance but for its gaps."""

    def __init__(self, keys: ModelKeys, tenant: str) -> None:
        self.keys = keys
        self._tenant = tenant
        blank = self._pack(Request(_ID_HERE, _INPUTS_HERE, MSGPACK))
        self._before_id, rest = blank.split(_length(_ID_HERE) + _ID_HERE.encode())
        self._before_inputs, self._end = rest.split(_length(_INPUTS_HERE) + _INPUTS_HERE)

    def pack(self, options: Options, request_id: str, inputs: Any) -> bytes:
        """The command that adds this request.

        Raises:
            CallerError: `bad_inputs` where `inputs` cannot be put on the wire.
        """
        body, rows = encode_inputs(inputs)
        encoded = encode_body(body, MSGPACK)
        if options is not NO_OPTIONS or rows > 1:
            return self._pack(options.to_request(request_id, encoded, rows))
        raw_id = request_id.encode()
        return b"".join(
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

    def _pack(self, request: Request) -> bytes:
        return pack(requests.submit(self.keys, self._tenant, request).parts)


def _length(part: Sized) -> bytes:
    """What stands before a part of a packed command."""
    return b"$%d\r\n" % len(part)
