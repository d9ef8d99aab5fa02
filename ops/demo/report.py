"""What the demo found, computed from receipts and embeddings. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEST_MAX = 5


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """One answered request: its receipt, and how long the caller waited in all."""

    receipt: Mapping[str, Any]
    waited_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a set of requests of one row each.

    Attributes:
        bucket: edge of the length bucket; None for all together.
        requests: how many.
        throughput_per_s: answers a second over the whole run.
        p50_ms, p99_ms: percentiles of what the callers waited.
        mean_batch: rows ÷ batches; a bucket's counts the rows of other buckets in its batches too.
        padding_ratio: padded ÷ real tokens.
    """

    bucket: int | None
    requests: int
    throughput_per_s: float
    p50_ms: float
    p99_ms: float
    mean_batch: float
    padding_ratio: float


def figures(
    served: Sequence[AnsweredRequest], duration_s: float, bucket: int | None = None
) -> Figures:
    """Figures of these requests, which ran within `duration_s`.

    Raises:
        ValueError: no requests.
    """
    if not served:
        raise ValueError("no request was answered")
    waited = [one.waited_ms for one in served]
    p50_ms, p99_ms = np.percentile(waited, [50, 99])
    rows_of_batch = {one.receipt["batch"]: one.receipt["rows"] for one in served}
    real = sum(one.receipt["tokens"] for one in served)
    padded = sum(one.receipt["padded_tokens"] for one in served)
    return Figures(
        bucket=bucket,
        requests=len(served),
        throughput_per_s=len(served) / duration_s,
        p50_ms=float(p50_ms),
        p99_ms=float(p99_ms),
        mean_batch=sum(rows_of_batch.values()) / len(rows_of_batch),
        padding_ratio=padded / max(1, real),
    )


def figures_by_bucket(served: Sequence[AnsweredRequest], duration_s: float) -> list[Figures]:
    """Figures of each bucket, the shortest texts first."""
    groups: dict[int, list[AnsweredRequest]] = {}
    for one in served:
        groups.setdefault(one.receipt["bucket"], []).append(one)
    return [figures(groups[bucket], duration_s, bucket) for bucket in sorted(groups)]


@dataclass(frozen=True, slots=True)
class Question:
    """A search question, and the modules of which one must be among the best."""

    text: str
    expected: frozenset[str]


QUESTIONS = (
    Question("How do I compress data with gzip?", frozenset({"gzip", "zlib"})),
    Question("How do I read rows from a CSV file?", frozenset({"csv"})),
    Question("How do I open a TCP connection to a server?", frozenset({"socket"})),
)


@dataclass(frozen=True, slots=True)
class Match:
    """A module and its text that is nearest to a question; `similarity` is their cosine."""

    module: str
    text: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The best modules for a question, and the expected one among them, or None."""

    question: Question
    hits: tuple[Match, ...]
    found: str | None = field(default=None)


def search(
    question: Question,
    question_vector: NDArray[np.float32],
    vectors: NDArray[np.float32],
    places: Sequence[tuple[str, str]],
) -> Finding:
    """Find the modules whose texts are nearest to the question.

    Args:
        question: what is asked.
        question_vector: its embedding; shape [size].
        vectors: embeddings of the texts; shape [texts, size].
        places: module and text of each row of `vectors`.
    """
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(question_vector)
    similarities = vectors @ question_vector / norms
    best: dict[str, Match] = {}
    for at in np.argsort(-similarities):
        module, text = places[at]
        if module not in best:
            best[module] = Match(module, text, float(similarities[at]))
        if len(best) == BEST_MAX:
            break
    found = next((module for module in best if module in question.expected), None)
    return Finding(question, tuple(best.values()), found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Texts a second of one process that runs the same runtime without a fleet.

    `naive`: the best batch size in order of arrival. `ideal`: the best batch size with the texts
    sorted by length, mean of a run before the fleet and one after it.
    """

    naive_per_s: float
    ideal_per_s: float


def summary(
    overall: Figures, errors: int, baselines: Baselines, findings: Sequence[Finding]
) -> dict[str, Any]:
    """The demo's last line; `requests` counts the texts, `found` names one module a question."""
    return {
        "requests": overall.requests + errors,
        "errors": errors,
        "throughput_per_s": round(overall.throughput_per_s, 2),
        "naive_per_s": round(baselines.naive_per_s, 2),
        "ideal_per_s": round(baselines.ideal_per_s, 2),
        "p50_ms": round(overall.p50_ms, 1),
        "p99_ms": round(overall.p99_ms, 1),
        "mean_batch": round(overall.mean_batch, 2),
        "padding_ratio": round(overall.padding_ratio, 4),
        "found": [finding.found for finding in findings],
    }
