"""From a loaded model to one that serves: its engine chosen, its examples right, its cost known.

What this takes seconds to measure is kept for the next start, for models with engines: their
answers and figures depend on nothing but what the situation names. Golden examples run each time.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...models.engines import Verdict, check_engines, may_serve
from ...models.likeness import Likeness
from ...service.clock import Clock
from ...wire.errors import StoreError
from .batch_memory import PeakMemory
from .engine_choice import use_best_engine
from .golden import check_golden
from .host import cpu_identity
from .loaded_models import LoadedModel
from .opened import VersionFiles
from .warming import CurvePoint, plan_points, try_once, warm_up


class Readiness(NamedTuple):
    """What a start has to know of a version; no verdict for a model without engines.

    `row_bytes`: memory that one more row of the greatest length takes in a batch; 0 if unknown.
    """

    verdict: Verdict | None
    curve: Sequence[CurvePoint]
    row_bytes: int = 0


def get_ready(loaded: LoadedModel, files: VersionFiles, threads: int, clock: Clock) -> Readiness:
    """Choose the engine, run the golden examples, and measure what batches cost.

    Raises:
        StoreError: the version cannot serve.
        RequestError: it fails on an example.
    """
    situation = _situation(loaded, threads)
    known = _known(loaded, files.measurements.find(situation))
    if known is not None and known.verdict is not None:
        loaded.model.use_engine(known.verdict.engine.name)
        check_golden(loaded, files.golden, loaded.record.precision)
        memory = PeakMemory(loaded.device)
        try_once(loaded, known.curve)
        return known._replace(row_bytes=_row_bytes(memory, known.curve))
    verdict = use_best_engine(loaded, files.golden, clock)
    check_golden(loaded, files.golden, loaded.record.precision)
    memory = PeakMemory(loaded.device)
    curve = warm_up(loaded, clock)
    if verdict is not None:
        files.measurements.keep(situation, _to_wire(verdict, curve))
    return Readiness(verdict, curve, _row_bytes(memory, curve))


def _row_bytes(memory: PeakMemory, curve: Sequence[CurvePoint]) -> int:
    """What the largest batch of a curve has taken, for as many tokens as its longest row has."""
    if not curve:
        return 0
    tokens = max(rows * length for rows, length, _ in curve)
    longest = max(length for _, length, _ in curve)
    return memory.grown_bytes() * longest // tokens


def _situation(loaded: LoadedModel, threads: int) -> dict[str, Any]:
    """All that the figures of one version depend on."""
    torch = sys.modules.get("torch")  # only where the model has imported it
    device = loaded.device
    if device.startswith("cuda") and torch is not None:
        device = f"{device} {torch.cuda.get_device_name(device)}"
    return {
        "cpu": cpu_identity(),
        "device": device,
        "threads": threads,
        "torch": str(getattr(torch, "__version__", "")),
        "precision": loaded.record.precision,
        "points": plan_points(loaded.record.limits),
    }


def _to_wire(verdict: Verdict, curve: Sequence[CurvePoint]) -> dict[str, Any]:
    return {
        "engine": verdict.engine.name,
        "gain": verdict.gain,
        "difference": verdict.likeness.difference,
        "cosine": verdict.likeness.cosine,
        "curve": curve,
    }


def _known(loaded: LoadedModel, kept: Any) -> Readiness | None:
    """What was kept, if it is whole and this machine still offers the engine."""
    if not isinstance(kept, Mapping):
        return None
    engines = check_engines(list(loaded.model.engines()))
    try:
        allowed = may_serve(engines, loaded.record.precision)
        engine = next(one for one in allowed if one.name == kept["engine"])
        likeness = Likeness(float(kept["difference"]), float(kept["cosine"]))
        curve = [(int(rows), int(length), float(ms)) for rows, length, ms in kept["curve"]]
        return Readiness(Verdict(engine, float(kept["gain"]), likeness), curve)
    except (StoreError, StopIteration, KeyError, TypeError, ValueError):
        return None
