"""Lanes (loaded versions), and the requests whose rows wait or are half done."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from ...models.model import Model
from ...wire.deployment import VersionRecord
from ...wire.errors import ProtocolError, RequestError
from ...wire.signature import TensorSpec
from ...wire.tensors import DATATYPES
from ..link.protocol import Failure, PreparedItem, RowHandle
from .faults import FaultLog, failure_of
from .inputs import Inputs
from .kind_logger import KindLogger
from .load_pace import LoadPace
from .memory import MemoryLimit

REQUESTS_MAX = 65_536
# Rows that come unprepared go back to be batched by length where this much of them is padding.
_DIRECT_PADDING_MAX = 2
# In place of a value that is not prepared: not yet, or used up by a run.
NOT_AT_HAND: Final = object()
# In place of the output of a row that was not handed out yet.
NOT_TAKEN: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A loaded version. `device` is what the model itself was given.

    A caller of `preprocess` or `postprocess` holds the lock of that name until what came back is
    copied: several threads prepare and answer, and a model may return the same buffer each time.
    """

    number: int
    model: Model
    record: VersionRecord
    device: str
    logger: KindLogger
    fault_log: FaultLog
    memory: MemoryLimit = field(default_factory=MemoryLimit)
    pace: LoadPace = field(default_factory=LoadPace)
    preprocessing: threading.Lock = field(default_factory=threading.Lock)
    postprocessing: threading.Lock = field(default_factory=threading.Lock)
    preprocesses: bool = field(init=False)
    postprocesses: bool = field(init=False)
    outputs: Mapping[str, TensorSpec] = field(init=False)
    output_dtypes: Mapping[str, np.dtype[Any] | None] = field(init=False)

    def __post_init__(self) -> None:
        """Look up once what every row would otherwise ask again."""
        specs = {spec.name: spec for spec in self.record.signature.outputs}
        kind = type(self.model)
        object.__setattr__(self, "preprocesses", kind.preprocess is not Model.preprocess)
        object.__setattr__(self, "postprocesses", kind.postprocess is not Model.postprocess)
        object.__setattr__(self, "outputs", specs)
        dtypes = {name: _dtype(spec) for name, spec in specs.items()}
        object.__setattr__(self, "output_dtypes", dtypes)

    @property
    def is_plain(self) -> bool:
        """Whether rows go to `predict` as they came, each of length 1."""
        as_they_came = not (self.preprocesses or self.model.stack)
        return as_they_came and self.record.bytes_per_token <= 0

    @property
    def is_fixed(self) -> bool:
        """Whether every row has length 1, whatever arrays `preprocess` makes of it.

        Not where they are stacked: the mask is as long as a row.
        """
        is_fixed = self.record.signature.is_fixed and self.record.bytes_per_token <= 0
        return is_fixed and not self.model.stack

    def fits_one_batch(self, lengths: Sequence[int], kinds: Sequence[int]) -> bool:
        """Whether rows of these lengths and kinds may run together; a single row always may."""
        limits = self.record.limits
        count = len(lengths)
        if count <= 1:
            return True
        padded = max(lengths) * count
        tokens = limits.max_batch_tokens or _DIRECT_PADDING_MAX * sum(lengths)
        rows = limits.max_batch_size or count
        return count <= rows and padded <= tokens and len(set(kinds)) == 1

    def failure_of(self, request: int, error: RequestError) -> Failure:
        """The protocol's word for a request that ended in `error`, of which its author is told."""
        return failure_of(request, self.fault_log.note(error))


def _dtype(spec: TensorSpec) -> np.dtype[Any] | None:
    """The numpy type of a declared output; None for strings. bfloat16 travels as float32."""
    return DATATYPES.get("FP32" if spec.datatype == "BF16" else spec.datatype)


@dataclass(slots=True)
class PreparedRequest:
    """A preprocessed request on its way to its answer.

    `values`, `outputs` and `missing` belong to the device thread once the request is in the book
    (or, with `PrepareRun`, from the start). A value is handed to `predict` once; a row that runs
    again is prepared again from `inputs`. `dropped` is set by `RequestBook.drop` and read by all.
    """

    number: int
    lane: int
    accept: str
    wanted: tuple[str, ...]
    inputs: Inputs
    values: list[Any]
    lengths: list[int]
    kinds: list[int]
    truncated_tokens: int
    outputs: list[Any]
    missing: int
    preprocess_ms: float = 0.0
    dropped: bool = False

    def take(self, index: int) -> "TakenRow | None":
        """Hand out one row, once; None where there is no such row any more."""
        if not 0 <= index < len(self.outputs) or self.outputs[index] is not NOT_TAKEN:
            return None
        self.outputs[index] = None
        return TakenRow(self, index)

    def report(self) -> PreparedItem:
        """What the main process has to know about it."""
        return PreparedItem(
            self.number, self.lengths, self.truncated_tokens, self.preprocess_ms, self.kinds
        )


class TakenRow(NamedTuple):
    """A row taken out for one batch: its place in the request."""

    request: PreparedRequest
    place: int


def take_all(requests: Iterable[PreparedRequest]) -> list[TakenRow]:
    """Hand out every row, of requests that no other thread uses."""
    return [
        TakenRow(request, place) for request in requests for place in range(len(request.values))
    ]


class RequestBook:
    """The requests that wait in this process, by number. Safe to call from all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Request number → its lane while it is being preprocessed, then the request. Under _lock.
        self._requests: dict[int, int | PreparedRequest] = {}

    def expect(self, lane: int, requests: Iterable[int]) -> None:
        """Note requests whose preprocessing is about to start.

        Raises:
            ProtocolError: there are more than `REQUESTS_MAX`; the main process leaks them.
        """
        with self._lock:
            self._requests.update(dict.fromkeys(requests, lane))
            if len(self._requests) > REQUESTS_MAX:
                raise ProtocolError(f"over {REQUESTS_MAX} requests wait in the device process")

    def expects(self, request: int) -> bool:
        """Whether a request is known: it may have been dropped."""
        with self._lock:
            return request in self._requests

    def add(self, request: PreparedRequest) -> bool:
        """Keep an expected request for later batches; False where it was dropped meanwhile."""
        with self._lock:
            if request.number not in self._requests:
                return False
            self._requests[request.number] = request
            return True

    def take(self, lane: int, handles: Iterable[RowHandle]) -> list[TakenRow]:
        """Hand out rows of a lane; handles that are unknown or were used are passed over."""
        with self._lock:
            rows = []
            for number, index in handles:
                request = self._requests.get(number)
                if isinstance(request, PreparedRequest) and request.lane == lane:
                    row = request.take(index)
                    if row is not None:
                        rows.append(row)
            return rows

    def drop(self, requests: Iterable[int]) -> list[int]:
        """Forget requests; returns those that were known."""
        with self._lock:
            return [number for number in requests if self._forget(number)]

    def drop_lane(self, lane: int) -> None:
        """Forget all requests of a lane."""
        with self._lock:
            for number in [n for n, entry in self._requests.items() if _lane_of(entry) == lane]:
                self._forget(number)

    def _forget(self, number: int) -> bool:
        entry = self._requests.pop(number, None)
        if isinstance(entry, PreparedRequest):
            entry.dropped = True
        return entry is not None


def _lane_of(entry: int | PreparedRequest) -> int:
    return entry.lane if isinstance(entry, PreparedRequest) else entry
