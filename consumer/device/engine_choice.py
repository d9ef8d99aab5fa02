"""Which engine a loaded version uses: those that may serve it are run on this machine.

Other work of the machine disturbs what is measured. So engines take turns, once forth and once
back, and the fastest run of each turn counts; `choose_engine` says what follows from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from ...models.engines import (
    Engine,
    Measured,
    Verdict,
    check_engines,
    choose_engine,
    may_serve,
)
from ...models.likeness import Likeness, likeness_of, worst
from ...models.manifest import Golden
from ...service.clock import Clock
from ...wire.codec import JSON, decode_body
from ...wire.deployment import EXACT, Limits
from ...wire.errors import StoreError
from ...wire.tensors import Column, decode_columns
from .answering import encode_answer
from .faults import cleaned, is_failure, model_error
from .golden import answer_to, check_golden
from .loaded_models import LoadedModel, PreparedRequest, take_all
from .running import batch_of, keep_output, outputs_of
from .warming import batch_ms, example_request, most_rows, times

# Rows of a batch of fair size.
_FAIR_ROWS = 8
# A batch that takes longer is run once and not three times.
_SLOW_MS = 500
# At load, engines do not go back if going forth took longer: a start has to end.
_TURN_MS = 2000

Answer = Mapping[str, Column]


def use_best_engine(loaded: LoadedModel, golden: Sequence[Golden], clock: Clock) -> Verdict | None:
    """Have a model use the fastest engine of the version's precision; None where it has none.

    Raises:
        StoreError: no engine may serve the version, or what the model says of them cannot be.
        RequestError: the plain engine fails on an example.
    """
    precision = loaded.record.precision
    engines = check_engines(list(loaded.model.engines()))
    if not engines:
        if precision != EXACT:
            raise StoreError(f"precision is {precision!r}, and the model has no engines")
        return None
    plain = engines[0]
    allowed = may_serve(engines, precision)
    if allowed == [plain]:
        return Verdict(plain, 1.0, Likeness())
    compared = [plain, *(engine for engine in allowed if engine != plain)]
    verdict = choose_engine(
        measure_engines(loaded, compared, golden, clock, most_ms=_TURN_MS), precision
    )
    loaded.model.use_engine(verdict.engine.name)
    return verdict


def measure_engines(
    loaded: LoadedModel,
    engines: Sequence[Engine],
    golden: Sequence[Golden],
    clock: Clock,
    inputs: Sequence[Any] = (),
    most_ms: float = inf,
) -> list[Measured]:
    """Run these engines, of which the first is the plain one, in use; leaves another one in use.

    Args:
        loaded: the model.
        engines: those to run.
        golden: its golden examples.
        clock: by which runs are timed.
        inputs: of more requests, in wire form, on which engines are compared.
        most_ms: how long the first turn may take if there is to be a second one.

    Raises:
        RequestError: the plain engine fails on an example.
    """
    started_ms = clock.monotonic_ms()
    bench = _Bench(loaded, golden, clock, inputs)
    plain = engines[0]
    expected = bench.answers()
    found = {plain: Measured(plain, [bench.round_ms()], Likeness())}
    for engine in engines[1:]:
        found[engine] = _first_turn(bench, engine, expected)
    if clock.monotonic_ms() - started_ms > most_ms:
        return list(found.values())
    for engine in reversed(engines):
        if not found[engine].fault:
            if engine != engines[-1]:  # the last one is in use
                loaded.model.use_engine(engine.name)
            rounds_ms = [*found[engine].rounds_ms, bench.round_ms()]
            found[engine] = replace(found[engine], rounds_ms=rounds_ms)
    return list(found.values())


def _first_turn(bench: "_Bench", engine: Engine, expected: Sequence[Answer]) -> Measured:
    """Let a model use an engine for the first time; what it fails on says why it cannot serve."""
    loaded = bench.loaded
    try:
        loaded.model.use_engine(engine.name)
        check_golden(loaded, bench.golden, engine.precision)
        likeness = worst(map(likeness_of, bench.answers(), expected))
        return Measured(engine, [bench.round_ms()], likeness)
    except StoreError as error:
        return Measured(engine, [], Likeness(), str(error))
    except BaseException as error:  # noqa: BLE001  a model may raise anything; it is told in words
        told = cleaned(error) if is_failure(error) else model_error(error, "load", loaded.logger)
        return Measured(engine, [], Likeness(), told.message)


class _Bench:
    """The same rows for all engines of a model: what its golden examples and `example` give."""

    def __init__(
        self,
        loaded: LoadedModel,
        golden: Sequence[Golden],
        clock: Clock,
        inputs: Sequence[Any],
    ) -> None:
        self.loaded, self.golden = loaded, golden
        self._inputs = [*(example.inputs for example in golden), *inputs]
        # A busy machine stretches what runs on its CPU, and not the CPU's work.
        self._now_ms = clock.thread_cpu_ms if loaded.device == "cpu" else clock.monotonic_ms
        found = [self._example(length) for length in _lengths(loaded.record.limits)]
        self._examples = [request for request in found if request is not None]

    def _example(self, length: int) -> PreparedRequest | None:
        example = self.loaded.model.example(length)
        return None if example is None else example_request(self.loaded, example)

    def answers(self) -> list[Answer]:
        """To inputs in wire form, each row alone, and to the examples, all in one batch."""
        alone = [_decoded(answer_to(self.loaded, each), JSON) for each in self._inputs]
        requests = [times(self.loaded, request, 1) for request in self._examples]
        lengths = [request.lengths[0] for request in requests]
        kinds = [request.kinds[0] for request in requests]
        if not self.loaded.fits_one_batch(lengths, kinds):
            return alone
        outputs = outputs_of(self.loaded, batch_of(0, take_all(requests)))
        for request, output in zip(requests, outputs, strict=True):
            request.outputs[0] = keep_output(self.loaded, output)
        return alone + [
            _decoded(encode_answer(self.loaded, each), each.accept) for each in requests
        ]

    def round_ms(self) -> list[float]:
        """Milliseconds of a single row and of a fair batch, each the fastest of its runs."""
        if not self._examples:
            return []
        request = self._examples[-1]
        return [self._fastest_ms(request, rows) for rows in self._row_counts(request.lengths[0])]

    def _row_counts(self, length: int) -> list[int]:
        fair = min(_FAIR_ROWS, most_rows(self.loaded.record.limits, length))
        return [1, fair] if fair > 1 else [1]

    def _fastest_ms(self, request: PreparedRequest, rows: int) -> float:
        first_ms = batch_ms(self.loaded, request, rows, self._now_ms)
        if first_ms > _SLOW_MS:
            return first_ms
        # The first run prepared what all later ones find.
        return min(batch_ms(self.loaded, request, rows, self._now_ms) for _ in range(2))


def _decoded(body: bytes, content_type: str) -> Answer:
    return decode_columns(decode_body(body, content_type))


def _lengths(limits: Limits) -> list[int]:
    """A short length, and one that is usual: most texts are shorter than a third of the longest."""
    edges = [edge for edge in limits.buckets if edge > 0] or [max(1, limits.max_length)]
    return list(dict.fromkeys([edges[0], edges[len(edges) // 3]]))
