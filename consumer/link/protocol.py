"""What the main process and a device process say to each other.

A frame is a four-byte little-endian length and a msgpack array `[op, field, …]` with the fields of
the message in the order of its class. Requests and batches are numbered by the main process; a row
is `(request number, row index)`. Numbers are never used twice on one connection, and every device
process has a connection of its own, so a late message of a dead process reaches no other.

`docs/runtime-protocol.md` is the specification, for runtimes written in other environments.
"""

from typing import Any, NamedTuple

import msgpack

from ...wire.errors import ProtocolError

PROTOCOL_VERSION = 5
FRAME_BYTES_MAX = 512 * 1024 * 1024
# Exit status of a device process that ended because a model's code asked for it.
EXIT_MODEL_LEFT = 71

RowHandle = tuple[int, int]


class Item(NamedTuple):
    """One request to preprocess. `inputs` are the caller's bytes, untouched (or see `Fetch`)."""

    request: int
    content_type: str
    accept: str
    inputs: bytes
    truncate: str | None
    parameters: bytes | None
    outputs: str | None


class PreparedItem(NamedTuple):
    """One request whose rows now wait in the device process; `lengths` are exact, one a row.

    `kinds` has a number for each row; only rows of equal kinds may run together.
    """

    request: int
    lengths: list[int]
    truncated_tokens: int
    preprocess_ms: float
    kinds: list[int]


class Answer(NamedTuple):
    """One request that is complete. `outputs` are encoded as the caller asked."""

    request: int
    outputs: bytes
    postprocess_ms: float


class Failure(NamedTuple):
    """One request that failed; the device process has forgotten it. `code`: `wire/errors.py`."""

    request: int
    code: int
    message: str
    rows: list[int]


class EngineInUse(NamedTuple):
    """The engine that runs a version, and what the device process has measured of it.

    `gain` is how many times as fast as the plain engine it is; `difference` (largest) and `cosine`
    (least) say how like its answers are.
    """

    name: str
    precision: str
    gain: float
    difference: float
    cosine: float


# From the main process to a device process.


class Load(NamedTuple):
    """Load a version from the store as lane number `lane`, check its files, warm it up.

    `record` is the deploy record of the version (JSON of `VersionRecord`) with the operator's
    overrides in force. `beside` names what the worker serves meanwhile, and must not be ended by a
    lack of memory; it is empty for a first load. `memory_bytes` is what the version was seen to
    need, 0 where that is not known. Where the process itself serves others, batches of these come
    between the parts of the load, and no batch of its warm-up is to take longer than `slice_ms`;
    else that is 0.
    """

    lane: int
    model: str
    version: str
    store: str
    device: str
    threads: int
    record: bytes
    beside: str
    memory_bytes: int
    slice_ms: int


class Adjust(NamedTuple):
    """Take over changed limits of a lane; there is no answer. `record` as in `Load`."""

    lane: int
    record: bytes


class Unload(NamedTuple):
    """Forget a lane and everything that waits in it."""

    lane: int


class Prepare(NamedTuple):
    """Preprocess these requests; answered by `Prepared`, in any order."""

    lane: int
    items: list[Item]


class Fetch(NamedTuple):
    """As `Prepare`, of one tenant; the `inputs` of each item are the URL of the caller's bytes."""

    lane: int
    tenant: str
    items: list[Item]


class Run(NamedTuple):
    """Run these prepared rows as one batch; answered by `Done`.

    They are of one kind, and of requests with equal `parameters`.
    """

    batch: int
    lane: int
    rows: list[RowHandle]


class PrepareRun(NamedTuple):
    """Preprocess these requests and run all their rows as one batch; for an idle device.

    Answered by `Done`. Where the rows break `max_batch_size` or `max_batch_tokens`, or are not all
    of one kind, nothing is run: the items come back in `Done.prepared` with `Done.rows` empty.
    """

    batch: int
    lane: int
    items: list[Item]


class Drop(NamedTuple):
    """Forget these requests; numbers that are not known are passed over."""

    requests: list[int]


class Stop(NamedTuple):
    """Finish the batch in hand and exit."""


# From a device process to the main process.


class Hello(NamedTuple):
    """First word of a device process."""

    protocol: int
    pid: int
    python: str


class Ready(NamedTuple):
    """A lane is loaded and warm. `curve` holds measured `(rows, length, milliseconds)`.

    `engines` has the one in use, and is empty for a model that has nothing to choose from;
    `lineage` is the digest that receipts carry, which names the engine too. `memory_bytes` is by
    how much the load has grown the process, on CUDA what it holds of the device.
    """

    lane: int
    curve: list[tuple[int, int, float]]
    lineage: str
    memory_bytes: int
    load_ms: float
    engines: list[EngineInUse]


class Begun(NamedTuple):
    """A batch runs although a load that was sent before it has not ended."""

    batch: int


class Refused(NamedTuple):
    """A lane could not be loaded; `message` says why, for the operator."""

    lane: int
    message: str


class PreparedRows(NamedTuple):
    """Requests preprocessed, and those whose preprocessing failed."""

    items: list[PreparedItem]
    failures: list[Failure]


class Done(NamedTuple):
    """A batch has left the device.

    `rows` are those that ran; `prepared` is filled for `PrepareRun` only; `failures` and `answers`
    are of requests that ended with this batch. Other requests of the batch wait for more rows, or
    are still in postprocessing and come later in `Answers`.
    """

    batch: int
    rows: list[RowHandle]
    predict_ms: float
    prepared: list[PreparedItem]
    failures: list[Failure]
    answers: list[Answer]


class Answers(NamedTuple):
    """Requests that ended outside of a batch: postprocessed beside the device thread."""

    answers: list[Answer]
    failures: list[Failure]


class Memory(NamedTuple):
    """Memory of the device process; said about once a second while it works.

    `free_bytes` is what the CUDA device has left; 0 on a CPU.
    """

    resident_bytes: int
    free_bytes: int


Message = (
    Load | Adjust | Unload | Prepare | Fetch | Run | PrepareRun | Drop | Stop
    | Hello | Ready | Begun | Refused | PreparedRows | Done | Answers | Memory
)  # fmt: skip

_CLASSES: tuple[type[Any], ...] = (
    Load, Adjust, Unload, Prepare, Fetch, Run, PrepareRun, Drop, Stop,
    Hello, Ready, Begun, Refused, PreparedRows, Done, Answers, Memory,
)  # fmt: skip
OPS: dict[str, type[Any]] = {cls.__name__: cls for cls in _CLASSES}


def encode(message: Message) -> bytes:
    """The body of a frame."""
    packed: bytes = msgpack.packb((type(message).__name__, *message))
    return packed


_NESTED: dict[str, dict[str, type[Any]]] = {
    "Prepare": {"items": Item},
    "Fetch": {"items": Item},
    "PrepareRun": {"items": Item},
    "PreparedRows": {"items": PreparedItem, "failures": Failure},
    "Done": {"prepared": PreparedItem, "failures": Failure, "answers": Answer},
    "Ready": {"engines": EngineInUse},
    "Answers": {"answers": Answer, "failures": Failure},
}
_HANDLES = {"Run": "rows", "Done": "rows"}


def decode(body: bytes | memoryview) -> Message:
    """Read the body of a frame.

    Raises:
        ProtocolError: not a message of this protocol version.
    """
    try:
        op, *values = msgpack.unpackb(body, use_list=True, max_bin_len=FRAME_BYTES_MAX)
        cls = OPS[op]
        for at, part in _PARTS.get(op, ()):
            values[at] = [part(*entry) for entry in values[at]]
        at_rows = _ROWS.get(op)
        if at_rows is not None:
            values[at_rows] = [(request, row) for request, row in values[at_rows]]
        message: Message = cls(*values)
    except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
        raise ProtocolError(
            f"not a message of runtime protocol {PROTOCOL_VERSION}: {error}"
        ) from error
    return message


_PARTS: dict[str, list[tuple[int, type[Any]]]] = {
    op: [(OPS[op]._fields.index(name), part) for name, part in parts.items()]
    for op, parts in _NESTED.items()
}
_ROWS = {op: OPS[op]._fields.index(name) for op, name in _HANDLES.items()}
