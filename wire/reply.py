"""The reply: the one terminal item under a request's reply key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .codec import decode_reply_map, encode_body, join_map
from .errors import ErrorBody, ErrorKind, RequestError, kind_of
from .references import BLOB_SCHEME
from .states import State


def _three_decimals(ms: float) -> float:
    # `round(ms, 3)` takes three times as long.
    return round(ms * 1000) / 1000


class Usage(NamedTuple):
    """What the request cost."""

    rows: int = 0
    tokens: int = 0
    truncated_tokens: int = 0
    device_ms: float = 0.0

    def to_wire(self) -> dict[str, Any]:
        """The `usage` part of a reply."""
        return {
            "rows": self.rows,
            "tokens": self.tokens,
            "truncated_tokens": self.truncated_tokens,
            "device_ms": _three_decimals(self.device_ms),
        }


class Receipt(NamedTuple):
    """How the request was served; at most 300 bytes in msgpack. Times have three decimals.

    Attributes:
        attempt: 1 unless a worker or device process was lost on the way.
        queue_ms: from accept to the start of its (last) batch.
        preprocess_ms, predict_ms, postprocess_ms: in the device process; predict of the batch.
        bucket: edge of the length bucket that it was placed in.
        batch: `worker:sequence number` of the (last) batch that it ran in.
        rows: rows in that batch, its neighbours' included.
        tokens, padded_tokens: of this request's own rows, over all its batches.
        release: why the batch was cut: `idle`, `full`, `tokens`, `padding`, `time`, `knee`,
            `alone`.
        session: `kept`, `moved` or `cold`; None without a session.
        lineage: digest of weights, tokenizer, steps and code.
    """

    attempt: int = 1
    queue_ms: float = 0.0
    preprocess_ms: float = 0.0
    predict_ms: float = 0.0
    postprocess_ms: float = 0.0
    bucket: int = 0
    batch: str = ""
    rows: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    release: str = ""
    session: str | None = None
    lineage: str = ""

    def to_wire(self) -> dict[str, Any]:
        """The `receipt` part of a reply."""
        return {
            "attempt": self.attempt,
            "queue_ms": _three_decimals(self.queue_ms),
            "preprocess_ms": _three_decimals(self.preprocess_ms),
            "predict_ms": _three_decimals(self.predict_ms),
            "postprocess_ms": _three_decimals(self.postprocess_ms),
            "bucket": self.bucket,
            "batch": self.batch,
            "rows": self.rows,
            "tokens": self.tokens,
            "padded_tokens": self.padded_tokens,
            "release": self.release,
            "session": self.session,
            "lineage": self.lineage,
        }


class Envelope(NamedTuple):
    """The parts of a reply that do not depend on how the request ended."""

    id: str
    tenant: str
    accept: str
    model: str
    version: str = ""
    meta: str | None = None
    traceparent: str | None = None
    warnings: tuple[str, ...] = ()

    def head(self, status: str) -> dict[str, Any]:
        """The map that all replies start with; `status` is the value of a terminal `State`."""
        head: dict[str, Any] = {
            "id": self.id,
            "tenant": self.tenant,
            "status": status,
            "model": self.model,
            "version": self.version,
        }
        if self.meta is not None:
            head["meta"] = self.meta
        if self.traceparent is not None:
            head["trace_id"] = self.traceparent[3:35]
        if self.warnings:
            head["warnings"] = list(self.warnings)
        return head


def encode_answer(envelope: Envelope, outputs: bytes, usage: Usage, receipt: Receipt) -> bytes:
    """A reply with status `ok`; `outputs` are encoded already, in the envelope's `accept`."""
    return join_map(_answer_head(envelope, usage, receipt), "outputs", outputs, envelope.accept)


def encode_answer_at(envelope: Envelope, key: str, usage: Usage, receipt: Receipt) -> bytes:
    """A reply with status `ok` whose outputs lie under a key of their own."""
    head = _answer_head(envelope, usage, receipt)
    return encode_body({**head, "outputs_at": BLOB_SCHEME + key}, envelope.accept)


def _answer_head(envelope: Envelope, usage: Usage, receipt: Receipt) -> dict[str, Any]:
    head = envelope.head(_OK)
    head["usage"] = usage.to_wire()
    head["receipt"] = receipt.to_wire()
    return head


# Looked up once: an enum's `value` costs as much as the rest of the head.
_OK = State.OK.value
_STATUS = {
    ErrorKind.DEADLINE_EXCEEDED: State.DEADLINE_EXCEEDED,
    ErrorKind.CANCELLED: State.CANCELLED,
}


def status_of(kind: ErrorKind) -> State:
    """The terminal state that an error of this kind ends a request in."""
    return _STATUS.get(kind, State.ERROR)


def encode_error(envelope: Envelope, error: ErrorBody, receipt: Receipt | None = None) -> bytes:
    """A reply that carries an error."""
    head = envelope.head(status_of(error.kind).value)
    head["error"] = error.to_wire()
    if receipt is not None:
        head["receipt"] = receipt.to_wire()
    return encode_body(head, envelope.accept)


@dataclass(frozen=True, slots=True)
class Reply:
    """A decoded reply. `outputs` are still in wire form; `wire/tensors.py` turns them to arrays.

    Where `outputs_at` says where they lie (`blob:` and a key), `outputs` are None.
    """

    id: str
    tenant: str
    status: str
    model: str
    version: str
    outputs: Any = None
    outputs_at: str | None = None
    error: Mapping[str, Any] | None = None
    meta: str | None = None
    trace_id: str | None = None
    warnings: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)
    receipt: Mapping[str, Any] = field(default_factory=dict)

    def to_error(self) -> RequestError | None:
        """The error that the reply carries; None where it is an answer."""
        if self.error is None:
            return None
        return RequestError.of(
            kind_of(self.error["code"]),
            self.error.get("message", ""),
            rows=tuple(self.error.get("rows", ())),
            retry_after_ms=self.error.get("retry_after_ms"),
            reply=self,
        )


_TEXT, _NUMBER, _NIL = (str,), (int, float), type(None)
# What is read of a reply has these types, whoever wrote it: a tenant may write its own replies.
_HEAD: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "tenant", "status", "model", "version"), _TEXT),
    **dict.fromkeys(("outputs_at", "meta", "trace_id"), (str, _NIL)),
    **dict.fromkeys(("usage", "receipt"), (dict,)),
    "error": (dict, _NIL),
    "warnings": (list,),
}
_ERROR: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "message", "source"), _TEXT),
    "code": (int,),
    "retry_after_ms": (*_NUMBER, _NIL),
    "rows": (list,),
}
_USAGE = dict.fromkeys(Usage._fields, _NUMBER)
_RECEIPT: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(Receipt._fields, _NUMBER),
    **dict.fromkeys(("batch", "release", "lineage"), _TEXT),
    "session": (str, _NIL),
}


def _check(what: str, part: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    for name, allowed in types.items():
        if name in part and type(part[name]) not in allowed:
            raise ValueError(f"{name} of {what} is a {type(part[name]).__name__}")


def _check_items(what: str, items: Sequence[Any], of: type) -> None:
    if any(type(item) is not of for item in items):
        raise ValueError(f"{what} hold something else than they should")


def _check_parts(wire: Mapping[str, Any]) -> None:
    _check("a reply", wire, _HEAD)
    _check("a reply's usage", wire.get("usage", {}), _USAGE)
    _check("a reply's receipt", wire.get("receipt", {}), _RECEIPT)
    _check_items("the warnings of a reply", wire.get("warnings", ()), str)
    error = wire.get("error")
    if error is not None:
        if "code" not in error:
            raise ValueError("the error of a reply has no code")
        _check("a reply's error", error, _ERROR)
        _check_items("the rows of an error", error.get("rows", ()), int)


def decode_reply(raw: bytes) -> Reply:
    """Read a terminal item in either encoding; unknown parts are ignored.

    Raises:
        ValueError: not a reply of the contract.
    """
    wire = decode_reply_map(raw)
    _check_parts(wire)
    try:
        return Reply(
            id=wire["id"],
            tenant=wire["tenant"],
            status=wire["status"],
            model=wire.get("model", ""),
            version=wire.get("version", ""),
            outputs=wire.get("outputs"),
            outputs_at=wire.get("outputs_at"),
            error=wire.get("error"),
            meta=wire.get("meta"),
            trace_id=wire.get("trace_id"),
            warnings=tuple(wire.get("warnings", ())),
            usage=wire.get("usage", {}),
            receipt=wire.get("receipt", {}),
        )
    except KeyError as missing:
        raise ValueError(f"a reply without {missing}") from missing
