"""A version without a fleet: one process that embeds texts batch by batch, and how fast it is.

The demo compares the fleet with it, in a process of its own so that both get the same machine:

    echo '{"store": "./store", "model": "minilm", …}' | python -m batchfleet.ops.demo.baseline

reads a `BaselineJob` as JSON and answers with a JSON list of texts a second, one number a run.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from ...models.model import LoadContext, Model, PredictContext, Prepared, Row
from ...models.runtimes import resolve
from ...models.stacking import stack_rows
from ...models.store import Store
from ...service.clock import Clock, SystemClock
from ...wire.errors import StoreError

_DEVICE = "cpu"


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """All texts once, in batches of `batch_size` rows; in the order given, or sorted by length.

    `engine`: the one to use; empty for a model that has none.
    """

    batch_size: int
    sort: bool
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineJob:
    """What to measure. `threads` bounds those of one operation on the CPU."""

    store: str
    model: str
    version: str
    threads: int
    texts: Sequence[str]
    runs: Sequence[BaselineRun]

    @staticmethod
    def from_json(raw: bytes) -> "BaselineJob":
        """Read a job.

        Raises:
            ValueError, KeyError, TypeError: not a job.
        """
        fields = orjson.loads(raw)
        runs = [BaselineRun(**run) for run in fields.pop("runs")]
        return BaselineJob(**fields, runs=runs)


@dataclass(frozen=True, slots=True)
class BaselineModel:
    """A model that is ready to run on the CPU."""

    model: Model
    truncate: str


def load(job: BaselineJob) -> BaselineModel:
    """Load the job's version from its store.

    Raises:
        StoreError: it is missing, or not what its manifest says.
    """
    store = Store(job.store)
    manifest = store.manifest(job.model, job.version)
    record = manifest.record()
    model = resolve(manifest.runtime)()
    model.load(
        LoadContext(
            model=job.model,
            version=job.version,
            device=_DEVICE,
            threads=job.threads,
            seed=0,
            parameters=manifest.parameters,
            signature=record.signature,
            limits=record.limits,
            folder=store.fetch(job.model, job.version),
            logger=structlog.get_logger(),
        )
    )
    return BaselineModel(model, record.limits.truncate)


def rate(loaded: BaselineModel, texts: Sequence[str], run: BaselineRun, clock: Clock) -> float:
    """Texts a second of one run, preprocessing and postprocessing included."""
    started_ms = clock.monotonic_ms()
    for batch in _batches(loaded, texts, run):
        _predict(loaded.model, batch)
    return len(texts) / (clock.monotonic_ms() - started_ms) * 1000


def _batches(
    loaded: BaselineModel, texts: Sequence[str], run: BaselineRun
) -> Iterator[list[Prepared]]:
    prepared: Iterator[Prepared] | list[Prepared] = (_prepare(loaded, text) for text in texts)
    if run.sort:
        prepared = sorted(prepared, key=lambda row: row.length)
    batch: list[Prepared] = []
    for row in prepared:
        batch.append(row)
        if len(batch) == run.batch_size:
            yield batch
            batch = []
    if batch:
        yield batch


def _prepare(loaded: BaselineModel, text: str) -> Prepared:
    prepared = loaded.model.preprocess(Row({"text": text}, truncate=loaded.truncate))
    if not isinstance(prepared, Prepared):
        raise StoreError(f"{type(loaded.model).__name__} does not prepare texts")
    return prepared


def _predict(model: Model, batch: Sequence[Prepared]) -> list[Any]:
    lengths = [row.length for row in batch]
    rows: Any = [row.value for row in batch]
    if model.stack:
        rows = stack_rows(rows, lengths, model.pad_side, model.pad_value)
    parameters: Mapping[str, Any] = {}
    context = PredictContext(lengths=lengths, parameters=parameters, device=_DEVICE, batch=0)
    return [model.postprocess(output) for output in model.predict(rows, context)]


_WARM_UP_TEXTS = 32


def measure(job: BaselineJob, clock: Clock) -> list[float]:
    """Texts a second of each run of a job; what an engine does first is not counted."""
    loaded, in_use, rates = load(job), None, []
    for run in job.runs:
        if run.engine != in_use:
            in_use = run.engine
            if in_use:
                loaded.model.use_engine(in_use)
            rate(loaded, job.texts[:_WARM_UP_TEXTS], run, clock)
        rates.append(rate(loaded, job.texts, run, clock))
    return rates


def main() -> None:
    """Read a job from stdin, write its rates to stdout."""
    rates = measure(BaselineJob.from_json(sys.stdin.buffer.read()), SystemClock())
    sys.stdout.buffer.write(orjson.dumps(rates) + b"\n")


if __name__ == "__main__":
    main()
