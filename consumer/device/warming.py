"""The cost curve of a loaded model: how long a batch of so many rows of such a length takes.

The main process cuts batches by it, and a version whose warm-up fails is refused before it gets
a request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...models.model import Row
from ...service.clock import Clock
from ...wire.deployment import AUTO_ROWS, Limits
from ...wire.errors import ErrorKind, RequestError
from .answering import encode_answer
from .inputs import ExampleInputs
from .loaded_models import NOT_AT_HAND, LoadedModel, PreparedRequest, take_all
from .preparing import prepare_inputs
from .running import batch_of, outputs_of
from .snapshot import snapshot

CurvePoint = tuple[int, int, float]

WARM_UP_MS = 3000
_QUICK_MS = 20
_SLOW_MS = 100
_WARM_UP_BATCH = 0


def plan_points(limits: Limits) -> list[tuple[int, int]]:
    """The `(rows, length)` to measure, in the order in which they say something.

    Lengths are the bucket edges up to `max_length`; rows are powers of two, and the largest batch
    of that length. First come single rows of every length, then what has few tokens.
    """
    longest = limits.max_length or limits.buckets[-1]
    lengths = [edge for edge in limits.buckets if 0 < edge <= longest] or [max(1, longest)]
    points = [(rows, length) for length in lengths for rows in _row_counts(limits, length)]
    return sorted(points, key=lambda point: (point[0] > 1, point[0] * point[1], point[0]))


def most_rows(limits: Limits, length: int) -> int:
    """How many rows of a length are measured in one batch, at most."""
    most = limits.max_batch_size or AUTO_ROWS
    if limits.max_batch_tokens:
        most = max(1, min(most, limits.max_batch_tokens // length))
    return most


def _row_counts(limits: Limits, length: int) -> list[int]:
    most = most_rows(limits, length)
    counts = [1 << power for power in range(most.bit_length())]
    return counts if counts[-1] == most else [*counts, most]


def warm_up(loaded: LoadedModel, clock: Clock) -> list[CurvePoint]:
    """Run example rows through all three stages; returns `(rows, length, milliseconds)`, sorted.

    Takes about `WARM_UP_MS`: a batch that may take longer than is left, or than others in this
    process are to wait, is passed over. Empty where the model makes no examples.

    Raises:
        RequestError: the model fails on its own examples.
    """
    curve: dict[tuple[int, int], float] = {}
    ends_ms = clock.monotonic_ms() + WARM_UP_MS
    for rows, length in plan_points(loaded.record.limits):
        left_ms = min(ends_ms - clock.monotonic_ms(), loaded.pace.slice_ms)
        if curve and at_most_ms(curve, rows, length) > left_ms:
            continue
        example = loaded.model.example(length)
        if example is None:
            return []
        request = example_request(loaded, example)
        if request is None:
            continue
        if not curve:
            _check_answer(loaded, request, rows)
        curve[rows, request.lengths[0]] = _measure_ms(loaded, request, rows, clock)
    return [(*point, round(curve[point], 4)) for point in sorted(curve)]


def at_most_ms(curve: Mapping[tuple[int, int], float], rows: int, length: int) -> float:
    """What a batch may take, from what was measured: as if rows and tokens only added up.

    0 where nothing was measured.
    """
    sure = [ms * max(1.0, rows / n) * max(1.0, length / of) for (n, of), ms in curve.items()]
    return min(sure, default=0.0)


def try_once(loaded: LoadedModel, curve: Sequence[CurvePoint]) -> None:
    """Run one example and the largest batch of a curve, whose costs are known already.

    Raises:
        RequestError: the model fails on its own examples.
    """
    first = plan_points(loaded.record.limits)[0]
    points = [(rows, length) for rows, length, _ in curve]
    largest = max(points, key=lambda point: (point[0] * point[1], point[0]), default=first)
    for rows, length in dict.fromkeys([first, largest]):
        example = loaded.model.example(length)
        request = None if example is None else example_request(loaded, example)
        if request is not None:
            _check_answer(loaded, request, rows)


def example_request(loaded: LoadedModel, example: Row) -> PreparedRequest | None:
    """One row as a request; None for an example that overshot `max_length`.

    An example is of *about* the length asked for, so that is no reason to refuse the version.
    """
    try:
        return prepare_inputs(loaded, ExampleInputs(example, 1, loaded.record.limits.truncate))
    except RequestError as error:
        if error.kind is ErrorKind.TOO_LONG:
            return None
        raise


def times(loaded: LoadedModel, request: PreparedRequest, rows: int) -> PreparedRequest:
    """The same row over and over, each of its own."""
    (value,) = request.values
    is_at_hand = value is not NOT_AT_HAND
    return replace(
        request,
        values=[snapshot(value, loaded.model) if is_at_hand else value for _ in range(rows)],
        lengths=request.lengths * rows,
        kinds=request.kinds * rows,
        outputs=[None] * rows,
        missing=rows,
    )


def _measure_ms(loaded: LoadedModel, request: PreparedRequest, rows: int, clock: Clock) -> float:
    """Milliseconds of one batch after an untimed run; the middle of three where it is quick.

    A slow first run counts itself: what is cold about it is small beside it, and time is short.
    """
    run_ms = partial(batch_ms, loaded, request, rows, clock.monotonic_ms)
    first_ms = run_ms()
    if first_ms > _SLOW_MS:
        return first_ms
    second_ms = run_ms()
    # The minimum of the runs: other work of the machine only adds time.
    if second_ms > _QUICK_MS:
        return min(first_ms, second_ms)
    return min(second_ms, run_ms(), run_ms())


def batch_ms(
    loaded: LoadedModel, request: PreparedRequest, rows: int, now_ms: Callable[[], float]
) -> float:
    """Milliseconds, by a clock, of one batch of so many copies of a request's only row."""
    batch = batch_of(_WARM_UP_BATCH, take_all([times(loaded, request, rows)]))
    started_ms = now_ms()
    outputs_of(loaded, batch)
    ran_ms = now_ms() - started_ms
    loaded.pace.pause()
    return ran_ms


def _check_answer(loaded: LoadedModel, request: PreparedRequest, rows: int) -> None:
    """A version whose outputs break its own signature would fail every request."""
    batch = batch_of(_WARM_UP_BATCH, take_all([times(loaded, request, rows)]))
    encode_answer(loaded, replace(request, outputs=outputs_of(loaded, batch)[:1]))
