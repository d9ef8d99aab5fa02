"""What the demo found, computed from receipts and embeddings. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.engines import Engine, answers_digest
from ...wire.deployment import VersionRecord

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
    """Texts a second of one process that runs the same exact model without a fleet.

    `naive`: the plain engine and its best batch size, in order of arrival. `ideal`: the engine that
    serves best here and its best batch size, with the texts sorted by length, mean of a run before
    the fleet and one after it.
    """

    naive_per_s: float
    ideal_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One model of the demo: how fast the fleet was with it, and what was found with it.

    `engine` is the one that answered, or several, separated by commas.
    """

    precision: str
    engine: str
    overall: Figures
    errors: int
    findings: Sequence[Finding]

    @property
    def found(self) -> list[str | None]:
        """The expected module that was found for each question, or None."""
        return [finding.found for finding in self.findings]

    @property
    def is_right(self) -> bool:
        """Whether every text was embedded, and every question answered."""
        return not self.errors and all(self.found)


def engines_that_answered(
    served: Sequence[AnsweredRequest], record: VersionRecord, engines: Sequence[Engine]
) -> str:
    """Names of the engines whose digests the receipts have."""
    digests = {one.receipt["lineage"] for one in served}
    names = {answers_digest(record.lineage, record.precision, one): one.name for one in engines}
    return ", ".join(sorted(names.get(digest, "unknown") for digest in digests))


def least_cosine(
    vectors: Mapping[int, NDArray[np.float32]], others: Mapping[int, NDArray[np.float32]]
) -> float:
    """Smallest cosine of two vectors of the same text; both are of length 1.

    Raises:
        ValueError: they have no text in common.
    """
    return min(float(vectors[at] @ others[at]) for at in vectors.keys() & others.keys())


def same_results(findings: Sequence[Finding], others: Sequence[Finding]) -> int:
    """For how many questions the same texts were found, in the same order."""

    def texts(finding: Finding) -> list[str]:
        return [hit.text for hit in finding.hits]

    return sum(texts(one) == texts(other) for one, other in zip(findings, others, strict=True))


def summary(exact: Served, auto: Served, cosine: float, baselines: Baselines) -> dict[str, Any]:
    """The demo's last line.

    `requests` counts the texts, `found` names one module a question; `auto` is about the same
    weights with precision auto, and `cosine` the least one of both vectors of a text.
    """
    overall = exact.overall
    return {
        "requests": overall.requests + exact.errors,
        "errors": exact.errors,
        "throughput_per_s": round(overall.throughput_per_s, 2),
        "naive_per_s": round(baselines.naive_per_s, 2),
        "ideal_per_s": round(baselines.ideal_per_s, 2),
        "p50_ms": round(overall.p50_ms, 1),
        "p99_ms": round(overall.p99_ms, 1),
        "mean_batch": round(overall.mean_batch, 2),
        "padding_ratio": round(overall.padding_ratio, 4),
        "found": exact.found,
        "engine": exact.engine,
        "auto": {
            "precision": auto.precision,
            "engine": auto.engine,
            "errors": auto.errors,
            "throughput_per_s": round(auto.overall.throughput_per_s, 2),
            "found": auto.found,
            "same_results": same_results(exact.findings, auto.findings),
            "least_cosine": round(cosine, 6),
        },
    }
