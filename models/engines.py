"""Engines: the ways in which a model can compute the same answers, and which one to use. Pure.

A model names its engines, the plain one first; the plain one says what is right. A version's
*precision* says which engines may serve it, since an index must not mix answers of several. Among
those, each worker takes the fastest that its own machine has shown.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from ..wire.deployment import BF16, EXACT, FP32, PRECISIONS
from ..wire.errors import StoreError
from ..wire.names import shown
from .likeness import Likeness
from .manifest import JUDGED, LINEAGE_CHARACTERS

# Answers of an exact engine are as near to those of the plain one as its own are to themselves in
# another batch.
TOLERANCE = 1e-5
# Below it, a faster engine is not worth an answer that differs in the last digit.
GAIN_MIN = 1.10
ENGINES_MAX = 16
# What no clock measures well.
_LEAST_MS = 1e-3
# The engines that may serve a version of each precision.
_SERVING = {EXACT: (EXACT,), FP32: (EXACT, FP32), BF16: (BF16,)}


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to compute.

    Attributes:
        name: for people, and for `Model.use_engine`.
        precision: `exact` where answers are those of the plain engine up to rounding, `fp32` for
            other ways with 32-bit weights, `bf16`.
    """

    name: str
    precision: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What a machine has shown of an engine.

    Attributes:
        rounds_ms: for each round of measuring, milliseconds of one batch of each shape.
        likeness: of its answers to those of the plain engine, the worst of all.
        fault: why it cannot serve; empty where it can.
    """

    engine: Engine
    rounds_ms: Sequence[Sequence[float]]
    likeness: Likeness
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The engine to use, how many times as fast as the plain one it is, and how like."""

    engine: Engine
    gain: float
    likeness: Likeness


def check_engines(engines: Sequence[Engine]) -> Sequence[Engine]:
    """Return what a model says of its engines, if it can be so.

    Raises:
        StoreError: these are no engines, too many of them, or the first one is not exact.
    """
    if not all(isinstance(engine, Engine) for engine in engines) or len(engines) > ENGINES_MAX:
        raise StoreError(f"engines must return at most {ENGINES_MAX} batchfleet.Engine")
    if len({engine.name for engine in engines}) < len(engines):
        raise StoreError("engines has two of one name")
    if odd := [engine.name for engine in engines if engine.precision not in PRECISIONS]:
        raise StoreError(f"engine {shown(odd[0])}: its precision must be one of {PRECISIONS}")
    if engines and engines[0].precision != EXACT:
        raise StoreError(f"the first engine says what is right, so its precision must be {EXACT}")
    return engines


def answers_digest(lineage: str, precision: str, engine: Engine) -> str:
    """What a receipt says of where an answer came from: version, precision and engine in one."""
    parts = f"{lineage}\n{precision}\n{engine.name}"
    return hashlib.sha256(parts.encode()).hexdigest()[:LINEAGE_CHARACTERS]


def may_serve(engines: Sequence[Engine], precision: str) -> list[Engine]:
    """The engines that may serve a version of this precision, in their order.

    Raises:
        StoreError: there is none.
    """
    found = [engine for engine in engines if engine.precision in _SERVING[precision]]
    if not found:
        known = ", ".join(dict.fromkeys(engine.precision for engine in engines)) or EXACT
        raise StoreError(f"precision is {shown(precision)}, and here the model has only {known}")
    return found


def is_alike(likeness: Likeness, precision: str) -> bool:
    """Whether answers so like those of the plain engine may serve a version of this precision."""
    if precision == EXACT:
        return likeness.difference <= TOLERANCE
    return likeness.cosine >= JUDGED


def choose_engine(measured: Sequence[Measured], precision: str) -> Verdict:
    """The fastest engine that may serve, of all that the model has; the plain one is first.

    The first of the engines that may serve is kept unless another is faster by `GAIN_MIN`.

    Raises:
        StoreError: none may serve; the text says why of each.
    """
    allowed = may_serve([one.engine for one in measured], precision)
    able = [
        one
        for one in measured
        if one.engine in allowed and not one.fault and is_alike(one.likeness, precision)
    ]
    if not able:
        raise StoreError(
            f"no engine may serve precision {precision}: {_why_not(measured, allowed)}"
        )
    best = max(able, key=lambda one: gain_of(one, able[0]))
    if gain_of(best, able[0]) < GAIN_MIN:
        best = able[0]
    return Verdict(best.engine, gain_of(best, measured[0]), best.likeness)


def settle_precision(measured: Sequence[Measured]) -> str:
    """What `auto` means on this machine: `bf16` where that is faster than all that is exact."""
    exact = choose_engine(measured, EXACT)
    try:
        half = choose_engine(measured, BF16)
    except StoreError:  # it has none, or none that is right
        return EXACT
    return BF16 if half.gain >= GAIN_MIN * exact.gain else EXACT


def gain_of(measured: Measured, plain: Measured) -> float:
    """How many times as fast as another engine: the geometric mean over the shapes.

    Other work of the machine only adds time, so the fastest runs of all rounds are compared: a
    machine that was busy for a round decides nothing.
    """
    own = [max(_LEAST_MS, min(of_shape)) for of_shape in zip(*measured.rounds_ms, strict=True)]
    others = [max(_LEAST_MS, min(of_shape)) for of_shape in zip(*plain.rounds_ms, strict=True)]
    logs = [log(other / one) for one, other in zip(own, others, strict=True)]
    return exp(fsum(logs) / len(logs)) if logs else 1.0


def _why_not(measured: Sequence[Measured], allowed: Sequence[Engine]) -> str:
    return "; ".join(
        f"{one.engine.name}: {one.fault or str(one.likeness)}"
        for one in measured
        if one.engine in allowed
    )
