"""One error tree and one table of codes.

    BatchfleetError
    ├── RequestError              an error reply; has an `ErrorKind`
    │   ├── CallerError    1xx    the request is invalid; sending it again does not help
    │   ├── FleetError     2xx    the fleet could not serve it; a retry often helps
    │   └── ModelError     3xx    the model failed
    ├── SettingsError             a process is misconfigured and does not start
    ├── StoreError                a version in the store is missing, changed or invalid
    │   ├── EnvironmentMissingError   a version's Python environment is not on this machine
    │   └── VersionRefusedError   a version cannot be loaded because of its code or files
    ├── ProtocolError             a peer (device process, server) violated its protocol
    └── ServerError               the Redis server refused a command or could not be reached

The numbers are stable. Programs should use `code` or `name`, never the text of a message.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from .limits import ERROR_ROWS_MAX
from .texts import safe_text


class Source(Enum):
    """What caused an error."""

    CALLER = "caller"
    MODEL = "model"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of the error table."""

    code: int
    name: str
    http_status: int
    source: Source
    retryable: bool


class ErrorKind(Enum):
    """The error table: number, name, HTTP status, source, and whether a retry helps."""

    BAD_REQUEST = ErrorRow(100, "bad_request", 400, Source.CALLER, retryable=False)
    BAD_INPUTS = ErrorRow(101, "bad_inputs", 422, Source.CALLER, retryable=False)
    UNSUPPORTED_CONTENT_TYPE = ErrorRow(
        102, "unsupported_content_type", 415, Source.CALLER, retryable=False
    )
    TOO_LARGE = ErrorRow(103, "too_large", 413, Source.CALLER, retryable=False)
    TOO_LONG = ErrorRow(104, "too_long", 422, Source.CALLER, retryable=False)
    TOO_MANY_ROWS = ErrorRow(105, "too_many_rows", 413, Source.CALLER, retryable=False)
    FORBIDDEN_REFERENCE = ErrorRow(106, "forbidden_reference", 403, Source.CALLER, retryable=False)
    PAYLOAD_MISSING = ErrorRow(107, "payload_missing", 410, Source.CALLER, retryable=False)
    UNKNOWN_MODEL = ErrorRow(110, "unknown_model", 404, Source.CALLER, retryable=False)
    UNKNOWN_VERSION = ErrorRow(111, "unknown_version", 404, Source.CALLER, retryable=False)
    UNKNOWN_REQUEST = ErrorRow(112, "unknown_request", 404, Source.CALLER, retryable=False)
    SESSION_LOST = ErrorRow(120, "session_lost", 409, Source.CALLER, retryable=False)
    SESSION_ENDED = ErrorRow(121, "session_ended", 409, Source.CALLER, retryable=False)
    UNAUTHORISED = ErrorRow(130, "unauthorised", 401, Source.CALLER, retryable=False)
    FORBIDDEN = ErrorRow(131, "forbidden", 403, Source.CALLER, retryable=False)
    QUOTA = ErrorRow(140, "quota", 429, Source.CALLER, retryable=True)
    BUSY = ErrorRow(200, "busy", 503, Source.FLEET, retryable=True)
    NO_WORKER = ErrorRow(201, "no_worker", 503, Source.FLEET, retryable=True)
    UNAVAILABLE = ErrorRow(202, "unavailable", 503, Source.FLEET, retryable=True)
    DEADLINE_EXCEEDED = ErrorRow(210, "deadline_exceeded", 504, Source.FLEET, retryable=False)
    CANCELLED = ErrorRow(211, "cancelled", 499, Source.FLEET, retryable=False)
    ATTEMPTS_EXHAUSTED = ErrorRow(220, "attempts_exhausted", 500, Source.FLEET, retryable=True)
    INTERNAL = ErrorRow(290, "internal", 500, Source.FLEET, retryable=True)
    MODEL_ERROR = ErrorRow(300, "model_error", 500, Source.MODEL, retryable=False)
    BAD_OUTPUT = ErrorRow(301, "bad_output", 500, Source.MODEL, retryable=False)
    POISON = ErrorRow(302, "poison", 500, Source.MODEL, retryable=False)
    TIME_LIMIT = ErrorRow(303, "time_limit", 504, Source.MODEL, retryable=False)
    DEVICE_MEMORY = ErrorRow(304, "device_memory", 503, Source.MODEL, retryable=True)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Its number: another release may say something else about it."""
        del protocol
        return kind_of, (self.code,)

    @property
    def code(self) -> int:
        """The stable number."""
        return self.value.code

    @property
    def label(self) -> str:
        """The name on the wire, such as `too_long` (an enum's own `name` is upper case)."""
        return self.value.name

    @property
    def http_status(self) -> int:
        """The HTTP status of the error."""
        return self.value.http_status

    @property
    def source(self) -> Source:
        """What caused it."""
        return self.value.source

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.value.retryable


_BY_CODE = {kind.code: kind for kind in ErrorKind}
_PLAINEST = {1: ErrorKind.BAD_REQUEST, 3: ErrorKind.MODEL_ERROR}


class BatchfleetError(Exception):
    """Base class of all errors of batchfleet. Not raised itself.

    All of them can be pickled and copied, so they can cross processes in pools and task queues.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Class, `args` and attributes; making it anew would need what the class takes."""
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[BatchfleetError], arguments: tuple[Any, ...]) -> BatchfleetError:
    return kind.__new__(kind, *arguments)


class SettingsError(BatchfleetError):
    """The settings of a process are invalid; the text lists every fault."""


class StoreError(BatchfleetError):
    """A model version is missing, incomplete, changed, or differs from its manifest."""


class EnvironmentMissingError(StoreError):
    """A version's Python environment is not on this machine; the text says what to do."""


class VersionRefusedError(StoreError):
    """A version's own code, files or environment keep it from being loaded; the text says how."""


class ProtocolError(BatchfleetError):
    """A peer sent something outside its protocol; the connection to it is of no further use."""


class Remedy(Enum):
    """What a program does about an error of the server; `broker/errors.py` has the table."""

    WAIT = "wait and back off, then ask again by id"
    KEEP = "keep finished replies, refuse new requests, back off, log it"
    RECREATE = "create the stream and its group again, from the first entry; back off, log it"
    SET_ASIDE = "skip this key and continue with the others; log it once, check again later"
    LOAD = "load the script and run the command again"
    REREAD = "read the deploy record again, then repeat the command with the new one"
    START_OVER = "start over under a new name"
    STOP = "exit with a message and an exit code, because a retry does not help"
    REPORT = "log it, back off and try again"


class ServerError(BatchfleetError):
    """The Redis server refused a command or could not be reached.

    Attributes:
        remedy: what a program does about it.
        code: the first word of what the server said, which is stable; empty where it said nothing.
    """

    remedy: ClassVar[Remedy] = Remedy.REPORT
    code: str = ""


def checked(answer: Any) -> Any:
    """Return an answer of the server, or raise it where it is an error."""
    if isinstance(answer, ServerError):
        raise answer
    return answer


class RequestError(BatchfleetError):
    """A request ended, or would end, in an error reply.

    Attributes:
        kind: the row of the error table.
        message: one sentence for people; never decide by it.
        rows: input rows at fault, counted from 0, where the fault lies in single rows; a reply
            names the first 32.
        retry_after_ms: how long to wait before another try, where the fleet knows.
        reply: the decoded reply, where there was one.
    """

    source: ClassVar[Source]

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        rows: tuple[int, ...] = (),
        retry_after_ms: int | None = None,
        reply: Any = None,
    ) -> None:
        super().__init__(f"{kind.label} ({kind.code}): {message}")
        self.kind = kind
        self.message = message
        self.rows = rows
        self.retry_after_ms = retry_after_ms
        self.reply = reply

    @property
    def code(self) -> int:
        """The stable number of the error table."""
        return self.kind.code

    @property
    def name(self) -> str:
        """The stable name of the error table, such as `too_long`."""
        return self.kind.label

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind.retryable

    @staticmethod
    def of(
        kind: ErrorKind,
        message: str,
        *,
        rows: tuple[int, ...] = (),
        retry_after_ms: int | None = None,
        reply: Any = None,
    ) -> "RequestError":
        """Make the error of the family that `kind` belongs to."""
        family = _FAMILIES[kind.source]
        return family(kind, message, rows=rows, retry_after_ms=retry_after_ms, reply=reply)


class CallerError(RequestError):
    """The request is at fault."""

    source = Source.CALLER


class FleetError(RequestError):
    """The fleet could not serve the request."""

    source = Source.FLEET


class ModelError(RequestError):
    """The model failed on the request."""

    source = Source.MODEL


_FAMILIES: dict[Source, type[RequestError]] = {
    Source.CALLER: CallerError,
    Source.FLEET: FleetError,
    Source.MODEL: ModelError,
}


def kind_of(code: int) -> ErrorKind:
    """Look a number up; one from a newer contract is read as the plainest of its hundred."""
    return _BY_CODE.get(code) or _PLAINEST.get(code // 100, ErrorKind.INTERNAL)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The `error` part of a reply."""

    kind: ErrorKind
    message: str
    rows: tuple[int, ...] = ()
    retry_after_ms: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """The map that goes into a reply; message and rows are cut to the contract's limits."""
        body: dict[str, Any] = {
            "code": self.kind.code,
            "name": self.kind.label,
            "message": safe_text(self.message),
            "source": self.kind.source.value,
            "retryable": self.kind.retryable,
        }
        if self.retry_after_ms is not None:
            body["retry_after_ms"] = self.retry_after_ms
        if self.rows:
            body["rows"] = list(self.rows[:ERROR_ROWS_MAX])
        return body

    @staticmethod
    def from_error(error: RequestError) -> "ErrorBody":
        """The body that reports `error`."""
        return ErrorBody(error.kind, error.message, error.rows, error.retry_after_ms)
