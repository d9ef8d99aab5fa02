"""What a caller gets: a handle for a submitted request, a result for its reply."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..wire.errors import CallerError, ErrorKind, ProtocolError, RequestError
from ..wire.reply import Reply
from ..wire.tensors import Column, decode_columns
from .options import TOTAL_MS, require_number


@dataclass(frozen=True, slots=True)
class Handle:
    """A submitted request. `result`, `poll` and `status` only need its model and id.

    `entry_id` is the id of its ingress entry. If it is None, `status` cannot distinguish
    `submitted` from `unknown`.
    """

    model: str
    id: str
    entry_id: bytes | None = None
    timeout_ms: int | None = None


HandleLike = Handle | tuple[str, str]
"""A handle, or (model, id) of a request that another program submitted."""


def as_handle(handle: HandleLike) -> Handle:
    """The handle of either form.

    Raises:
        CallerError: `bad_request`, it is neither, or holds something else than is said there.
    """
    if not isinstance(handle, Handle):
        pair: Any = handle
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            text = "identify a request by the handle that `submit` returned, or by (model, id)"
            raise RequestError.of(ErrorKind.BAD_REQUEST, text)
        return Handle(*pair)
    if handle.timeout_ms is not None:
        require_number("timeout_ms of the handle", handle.timeout_ms, TOTAL_MS)
    return handle


class Result:
    """A successful reply. Outputs are decoded on first access; arrays are read-only."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __reduce__(self) -> tuple[Any, ...]:
        """The reply; outputs are decoded again where they are looked at."""
        return Result, (self._reply,)

    @property
    def id(self) -> str:
        """The request's id."""
        return self._reply.id

    @property
    def tenant(self) -> str:
        """The tenant of the request."""
        return self._reply.tenant

    @property
    def model(self) -> str:
        """The model that served it."""
        return self._reply.model

    @property
    def version(self) -> str:
        """The version that served it."""
        return self._reply.version

    @property
    def meta(self) -> str | None:
        """The `meta` that the caller sent."""
        return self._reply.meta

    @property
    def trace_id(self) -> str | None:
        """The trace id of the caller's `traceparent`."""
        return self._reply.trace_id

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings, such as truncated rows."""
        return self._reply.warnings

    @property
    def usage(self) -> Mapping[str, Any]:
        """Rows, tokens and device time; see `wire.reply.Usage`."""
        return self._reply.usage

    @property
    def receipt(self) -> Mapping[str, Any]:
        """How the request was served; see `wire.reply.Receipt`."""
        return self._reply.receipt

    @cached_property
    def outputs(self) -> dict[str, Column]:
        """Output name → array (first axis = rows in input order), or list of strings or bytes.

        Raises:
            ProtocolError: the fleet sent something that is not a tensor.
        """
        if self._reply.outputs is None:
            return {}
        try:
            return decode_columns(self._reply.outputs)
        except CallerError as error:
            raise ProtocolError(f"outputs of {self.id}: {error.message}") from error

    @property
    def output(self) -> Column:
        """The one output.

        Raises:
            ValueError: there are several, or none.
        """
        if len(self.outputs) != 1:
            raise ValueError(f"the outputs are {sorted(self.outputs)}; take one from `outputs`")
        return next(iter(self.outputs.values()))

    @property
    def text(self) -> str:
        """The one text of the one output.

        Raises:
            ValueError: there are several outputs or rows, or they are not text.
        """
        column = self.output
        if not isinstance(column, list) or len(column) != 1 or not isinstance(column[0], str):
            raise ValueError("the output is not a single text; use `output`")
        return column[0]

    def __repr__(self) -> str:
        return f"<Result {self.id} of {self.model}/{self.version}>"
