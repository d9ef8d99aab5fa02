"""One request through a version's code, without a fleet: what `batchfleet models try` runs.

The steps are those of a device process (`preparing`, `running`, `answering`), one after the other
in one thread, so that `breakpoint()` in a model's code stops at the terminal. The command line runs
this in a process of its own, see `version_job.py`.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from ...models.traces import with_own_frames
from ...service.clock import Clock
from ...wire.codec import JSON, MSGPACK, decode_body
from ...wire.errors import ErrorKind, RequestError
from ...wire.texts import kind_name, safe_text
from ..link.protocol import Item
from .answering import encode_answer
from .faults import ModelLeftError, failure_of, is_failure, merge_row_errors, request_error
from .load_pace import LoadPace
from .loaded_models import LoadedModel, PreparedRequest, take_all
from .loading import load_version, refusal
from .opening import store_opener
from .preparing import prepare
from .running import batch_of, keep_output, run_batch
from .version_job import VersionJob, run_from_files

STAGES = ("preprocess", "predict", "postprocess")
_SHOWN_CHARACTERS = 200
_LINE_CHARACTERS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob(VersionJob):
    """What to try.

    Attributes:
        inputs: the request's inputs in msgpack, in base64.
        parameters: JSON, or empty.
        stage: after which stage to stop.
    """

    inputs: str
    parameters: str
    stage: str

    @property
    def item(self) -> Item:
        """The request."""
        inputs, parameters = base64.b64decode(self.inputs), self.parameters.encode()
        return Item(1, MSGPACK, JSON, inputs, None, parameters or None, None)


@dataclass(slots=True, kw_only=True)
class Trial:
    """What came of it; as far as it got. Times in milliseconds.

    Attributes:
        refused: why the version could not be loaded.
        error: code, message and rows of the error that the request would end in.
        values: in words, one a row, what the last stage that ran gave.
        outputs: tensors in JSON, after postprocessing.
    """

    refused: str = ""
    error: dict[str, Any] | None = None
    load_ms: float = 0.0
    preprocess_ms: float = 0.0
    predict_ms: float = 0.0
    postprocess_ms: float = 0.0
    lengths: Sequence[int] = ()
    truncated_tokens: int = 0
    batches: Sequence[int] = ()
    values: Sequence[str] = ()
    outputs: Any = None


def run_job(job: TrialJob, clock: Clock, logger: Any) -> Trial:
    """Load the version, then run the request as far as asked."""
    trial = Trial()
    load = job.load
    try:
        loaded, ready = load_version(load, store_opener(job.options), LoadPace(), clock, logger)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model may raise anything; the trial says so in words
        shown = with_own_frames(error)
        logger.exception("load_failed", exc_info=shown)
        trial.refused = refusal(load, error)
        return trial
    trial.load_ms = ready.load_ms
    try:
        _run_stages(loaded, job, trial, clock)
    except ModelLeftError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        text = f"it would end the device process: {error}"
        trial.error = {"code": ErrorKind.POISON.code, "message": text, "rows": []}
    except BaseException as error:  # noqa: BLE001  told in words, as a device process would
        failure = failure_of(1, request_error(error, "try", logger))
        trial.error = {"code": failure.code, "message": failure.message, "rows": failure.rows}
    return trial


def _run_stages(loaded: LoadedModel, job: TrialJob, trial: Trial, clock: Clock) -> None:
    started_ms = clock.monotonic_ms()
    request = prepare(loaded, job.item)
    trial.preprocess_ms = _since_ms(started_ms, clock)
    trial.lengths, trial.truncated_tokens = request.lengths, request.truncated_tokens
    values = (
        request.values
        if loaded.preprocesses
        else map(request.inputs.view, range(len(request.values)))
    )
    trial.values = [describe_value(value) for value in values]
    if job.stage == STAGES[0]:
        return
    started_ms = clock.monotonic_ms()
    trial.batches = _predict(loaded, request)
    trial.predict_ms = _since_ms(started_ms, clock)
    trial.values = [describe_value(value) for value in request.outputs]
    if job.stage == STAGES[1]:
        return
    started_ms = clock.monotonic_ms()
    answer = encode_answer(loaded, request)
    trial.postprocess_ms = _since_ms(started_ms, clock)
    trial.outputs = decode_body(answer, JSON)


def _since_ms(started_ms: float, clock: Clock) -> float:
    return round(clock.monotonic_ms() - started_ms, 3)


def _predict(loaded: LoadedModel, request: PreparedRequest) -> list[int]:
    """Run all rows, in their order, in as few batches as the limits allow; returns their sizes."""
    sizes: list[int] = []
    errors: list[tuple[int, RequestError]] = []
    rows = take_all([request])
    for number, (start, end) in enumerate(cut(loaded, request.lengths, request.kinds), start=1):
        outputs = run_batch(loaded, batch_of(number, rows[start:end]))
        request.outputs[start:end] = [keep_output(loaded, output) for output in outputs]
        sizes.append(end - start)
    for at, output in enumerate(request.outputs):
        if is_failure(output):
            errors.append((at, output))
    if errors:
        raise merge_row_errors(errors)
    return sizes


def cut(
    loaded: LoadedModel, lengths: Sequence[int], kinds: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Where batches start and end when rows are taken in order."""
    start = 0
    while start < len(lengths):
        end = start + 1
        while end < len(lengths) and loaded.fits_one_batch(
            lengths[start : end + 1], kinds[start : end + 1]
        ):
            end += 1
        yield start, end
        start = end


def describe_value(value: Any) -> str:
    """Any value of a model's in one line."""
    try:
        return safe_text(_in_one_line(value), _LINE_CHARACTERS_MAX)
    except BaseException as error:  # noqa: BLE001  the value's own code, or a value without end
        return f"({kind_name(value)} that cannot be shown: {kind_name(error)})"


def _in_one_line(value: Any) -> str:
    if isinstance(value, Mapping):
        return "  ".join(f"{name}: {_in_one_line(part)}" for name, part in value.items())
    if isinstance(value, np.ndarray):
        head = np.array2string(value.reshape(-1)[:6], separator=" ", precision=6)[1:-1].strip()
        more = " …" if value.size > 6 else ""
        return f"{value.dtype}{list(value.shape)} {head}{more}"
    text = orjson.dumps(value).decode() if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


if __name__ == "__main__":
    run_from_files(TrialJob, run_job)
