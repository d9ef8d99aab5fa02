"""The options of a request, and the request entry that is made of them."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

import orjson

from ..wire.codec import JSON, MSGPACK, plain_json
from ..wire.errors import ErrorKind, RequestError
from ..wire.limits import DELAY_MS_MAX, NOTIFY_PREFIX_LENGTH, TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX
from ..wire.numbers import Range, shown_value
from ..wire.request import FIELD_CHOICES, FIELD_RANGES, Request

# How much longer than the request's own timeout a caller waits for the fleet to report it.
_GRACE_MS = 5_000
_ENDING_CHARACTERS = 32 - NOTIFY_PREFIX_LENGTH
_DRAWN_IDS = 256

Accept = Literal["application/json", "application/msgpack"]
Priority = Literal["high", "normal", "low"]


class OptionFields(TypedDict, total=False):
    """The keyword options of `submit`, `infer` and `map`; `Options` explains them."""

    id: str | None
    version: str | None
    parameters: Mapping[str, Any] | None
    outputs: Sequence[str] | None
    priority: Priority
    timeout_ms: int | None
    delay_ms: int | None
    retries: int | None
    result_ttl_ms: int | None
    length: int | None
    truncate: Literal["end", "refuse"] | None
    meta: str | None
    traceparent: str | None
    accept: Accept


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a request. None = the default of the deployment.

    Attributes:
        id: id of the request, a name. If a request already has this id, the new one joins it and
            does not run. None = a new id.
        version: version to run; None = the stable one.
        parameters: parameters for the model.
        outputs: names of the outputs to return; None = all.
        priority: `high` is served before `normal`, `normal` before `low`.
        timeout_ms: how long the request may take, including retries.
        delay_ms: how long the request waits first; its timeout begins after that.
        retries: maximum number of retries after a failure of the model, with growing pauses.
        result_ttl_ms: how long the reply is kept.
        length: tokens of the longest row, if known; replaces the router's estimate.
        truncate: `end` cuts rows that are too long, `refuse` answers `too_long`.
        meta: at most 1 kB of text that is returned with the reply.
        traceparent: W3C trace context.
        accept: encoding of the reply.
    """

    id: str | None = None
    version: str | None = None
    parameters: Mapping[str, Any] | None = None
    outputs: Sequence[str] | None = None
    priority: Priority = "normal"
    timeout_ms: int | None = None
    delay_ms: int | None = None
    retries: int | None = None
    result_ttl_ms: int | None = None
    length: int | None = None
    truncate: Literal["end", "refuse"] | None = None
    meta: str | None = None
    traceparent: str | None = None
    accept: Accept = "application/msgpack"

    def with_fields(self, fields: OptionFields) -> "Options":
        """These options, with some replaced.

        Raises:
            TypeError: unknown option; the text names the most similar one.
        """
        if not fields:
            return self
        unknown = [name for name in fields if name not in _OPTIONS]
        if unknown:
            raise TypeError(_unknown_option(unknown[0]))
        changed = replace(self, **fields)
        if isinstance(changed.outputs, str):  # a sequence of letters, to Python
            return replace(changed, outputs=(changed.outputs,))
        return changed

    def __post_init__(self) -> None:
        """Check each option against the protocol.

        Raises:
            CallerError: `bad_request`, naming the option and what it may be.
        """
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, require_number(name, value, FIELD_RANGES[name]))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value in choices):
                raise _bad(f"{name} must be one of: {', '.join(choices)}")
        for name in _TEXTS:
            _check_text(name, getattr(self, name))
        _check_outputs(self.outputs)

    @property
    def wait_s(self) -> float:
        """How long a caller waits that gives no `timeout_s`."""
        return default_wait_s(self.total_ms)

    @property
    def total_ms(self) -> int | None:
        """Delay and timeout together; None = the contract's default."""
        if not self.delay_ms:
            return self.timeout_ms
        return self.delay_ms + (self.timeout_ms or TIMEOUT_MS_DEFAULT)

    def to_request(self, request_id: str, inputs: bytes, rows: int) -> Request:
        """The request entry; `inputs` are encoded in msgpack.

        Raises:
            CallerError: `bad_request` where the parameters are no JSON.
        """
        given: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        given["id"] = request_id
        given["accept"] = JSON if self.accept == JSON else None
        if self.outputs is not None:
            given["outputs"] = ",".join(self.outputs)
        if self.parameters is not None:
            given["parameters"] = _encode_parameters(self.parameters)
        rows_given = rows if rows > 1 else None
        return Request(inputs=inputs, content_type=MSGPACK, rows=rows_given, **given)


_OPTIONS = tuple(field.name for field in fields(Options))
_NUMBERS = tuple(name for name in _OPTIONS if name in FIELD_RANGES)
_CHOICES = {name: FIELD_CHOICES[name] for name in _OPTIONS if name in FIELD_CHOICES}
_TEXTS = ("id", "version", "meta", "traceparent")


def _bad(message: str) -> RequestError:
    return RequestError.of(ErrorKind.BAD_REQUEST, message)


def require_number(name: str, value: Any, limits: Range) -> Any:
    """Return `value` in Python's own type if it lies within the range.

    Raises:
        CallerError: `bad_request`, naming the range.
    """
    if fault := limits.fault(value):
        raise _bad(f"{name} {fault}, not {shown_value(value)}")
    return limits.plain(value)


def _check_text(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise _bad(f"{name} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _bad(f"{name} holds a lone surrogate") from error


def _check_outputs(outputs: Any) -> None:
    if not isinstance(outputs, str | Sequence | None):
        raise _bad(f"outputs must be a list of names, not {type(outputs).__name__}")
    for name in outputs or ():
        _check_text("outputs", name)


def _unknown_option(name: str) -> str:
    near = get_close_matches(name, _OPTIONS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    if near and near[0].endswith("_ms"):
        hint = f"did you mean {near[0]}, in milliseconds? "
    return f"a request has no option {name!r}; {hint}Options are: {', '.join(_OPTIONS)}"


def _encode_parameters(parameters: Mapping[str, Any]) -> bytes:
    if not isinstance(parameters, Mapping):
        raise _bad("parameters must be a mapping from texts to values")
    try:
        return orjson.dumps(plain_json("parameters", parameters))
    except ValueError as error:
        raise _bad(str(error)) from error


# What delay and timeout together may come to, and a little more than that.
TOTAL_MS = Range(1, DELAY_MS_MAX + TIMEOUT_MS_MAX)
WAIT_S = Range(0, 100_000, whole=False)


def default_wait_s(timeout_ms: int | None) -> float:
    """How long to wait for a request with this timeout (None = the contract's default)."""
    return ((timeout_ms or TIMEOUT_MS_DEFAULT) + _GRACE_MS) / 1000


NO_OPTIONS = Options()


class RequestIds:
    """Ids of one client. All have one prefix, so that one channel per model reports all replies.

    Like the client it belongs to one event loop: a fork would repeat ids drawn before it.
    """

    def __init__(self, token_hex: Callable[[int], str] = secrets.token_hex) -> None:
        self._token_hex = token_hex
        self._prefix = token_hex(NOTIFY_PREFIX_LENGTH // 2)
        self._endings: list[str] = []

    def new(self) -> str:
        """A new id."""
        if not self._endings:
            # Many at a time, since each draw is a call of the system.
            digits = self._token_hex(_DRAWN_IDS * _ENDING_CHARACTERS // 2)
            starts = range(0, len(digits), _ENDING_CHARACTERS)
            self._endings = [digits[at : at + _ENDING_CHARACTERS] for at in starts]
        return self._prefix + self._endings.pop()
