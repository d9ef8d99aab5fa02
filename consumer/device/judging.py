"""All engines of a version side by side: what `batchfleet models judge` runs (`version_job.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from ...models.engines import (
    Measured,
    check_engines,
    choose_engine,
    gain_of,
    settle_precision,
)
from ...models.traces import with_own_frames
from ...service.clock import Clock
from ...wire.deployment import EXACT, PRECISIONS
from ...wire.errors import StoreError
from .engine_choice import measure_engines
from .load_pace import LoadPace
from .loading import open_model, refusal
from .opening import store_opener
from .version_job import VersionJob, run_from_files


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingJob(VersionJob):
    """What to judge. `inputs` are of requests, in wire form, on which engines have to agree."""

    inputs: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEngine:
    """One engine on this machine; see `models/engines.py`.

    `gain` is None beside a `fault`, and `difference` where answers are of other shapes.
    """

    name: str
    precision: str
    gain: float | None
    difference: float | None
    cosine: float
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of it.

    Attributes:
        refused: why the version could not be loaded.
        engines: all of them, the plain one first; none for a model that has no choice.
        serving: precision → the engine that would serve it here.
        settled: what `auto` means here.
    """

    refused: str = ""
    engines: Sequence[JudgedEngine] = ()
    serving: Mapping[str, str] = field(default_factory=dict)
    settled: str = ""


def judge(job: JudgingJob, clock: Clock, logger: Any) -> Judgement:
    """Load the version, and measure all of its engines."""
    try:
        loaded, files = open_model(job.load, store_opener(job.options), LoadPace(), clock, logger)
        engines = check_engines(list(loaded.model.engines()))
        if not engines:
            return Judgement(settled=EXACT)
        measured = measure_engines(loaded, engines, files.golden, clock, job.inputs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model may raise anything; the judgement says so in words
        logger.exception("load_failed", exc_info=with_own_frames(error))
        return Judgement(refused=refusal(job.load, error))
    return Judgement(
        engines=[_judged(one, measured[0]) for one in measured],
        serving=_serving(measured),
        settled=settle_precision(measured),
    )


def _judged(one: Measured, plain: Measured) -> JudgedEngine:
    return JudgedEngine(
        name=one.engine.name,
        precision=one.engine.precision,
        gain=None if one.fault else gain_of(one, plain),
        difference=one.likeness.difference if isfinite(one.likeness.difference) else None,
        cosine=one.likeness.cosine,
        fault=one.fault,
    )


def _serving(measured: Sequence[Measured]) -> dict[str, str]:
    found = {}
    for precision in PRECISIONS:
        try:
            found[precision] = choose_engine(measured, precision).engine.name
        except StoreError:
            continue  # no engine serves it; the faults of each are told
    return found


if __name__ == "__main__":
    run_from_files(JudgingJob, judge)
