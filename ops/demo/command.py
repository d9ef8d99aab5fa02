"""The demo: embed docstrings of the standard library with a fleet, measure it, and search them.

One router, one worker, one torch thread, 256 requests in flight, on a private server: first with
the exact model, then with the same weights and precision auto. Beside it stand two figures of one
process that runs the same runtime without any fleet (`Baselines`).
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from numpy.typing import NDArray

from ...producer.async_client import AsyncClient
from ...service.clock import Clock
from ...service.lifecycle import spawn
from ...wire.errors import RequestError
from ..children import ProgramError
from .report import QUESTIONS, AnsweredRequest, Finding, search
from .texts import DemoText

IN_FLIGHT = 256
BASELINE_TEXTS = 512
NAIVE_BATCHES = (1, 4, 8, 16, 32)
IDEAL_BATCHES = (8, 16, 32)
_BASELINE_TIMEOUT_S = 600.0

Tick = Callable[[], None]


@dataclass(slots=True)
class Embedded:
    """What came back: receipts, vectors by the number of the text, and errors of the rest."""

    served: list[AnsweredRequest] = field(default_factory=list)
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    errors: list[RequestError] = field(default_factory=list)
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """All texts embedded with one model, and the questions answered with it."""

    model: str
    harvest: Embedded
    findings: Sequence[Finding]


class Embedder:
    """Embeds texts with a model, `IN_FLIGHT` of them at any time. Belongs to one event loop.

    `answered` is called once per text, with a result or an error.
    """

    def __init__(self, client: AsyncClient, model: str, clock: Clock, answered: Tick) -> None:
        self._client = client
        self._model = model
        self._clock = clock
        self._answered = answered

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embed every text, one request each."""
        harvest = Embedded()
        numbered = iter(enumerate(texts))
        started_ms = self._clock.monotonic_ms()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(IN_FLIGHT, len(texts))):
                group.create_task(self._work(numbered, harvest))
        harvest.duration_s = (self._clock.monotonic_ms() - started_ms) / 1000
        return harvest

    async def _work(self, numbered: Iterator[tuple[int, str]], harvest: Embedded) -> None:
        for number, text in numbered:
            sent_ms = self._clock.monotonic_ms()
            try:
                result = await self._client.infer(self._model, text)
            except RequestError as error:
                harvest.errors.append(error)
            else:
                waited_ms = self._clock.monotonic_ms() - sent_ms
                harvest.served.append(AnsweredRequest(result.receipt, waited_ms))
                harvest.vectors[number] = np.asarray(result.output)[0]
            self._answered()


async def answer_questions(
    client: AsyncClient, model: str, texts: Sequence[DemoText], harvest: Embedded
) -> list[Finding]:
    """Find the texts that are nearest to each of the demo's questions.

    Raises:
        RequestError: a question could not be embedded.
    """
    numbers = sorted(harvest.vectors)
    vectors = np.stack([harvest.vectors[number] for number in numbers])
    places = [(texts[number].module, texts[number].text) for number in numbers]
    asked = await client.infer(model, [question.text for question in QUESTIONS])
    return [
        search(question, vector, vectors, places)
        for question, vector in zip(QUESTIONS, np.asarray(asked.output), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What `ops/demo/baseline.py` needs to run the deployed version without a fleet."""

    store: str
    model: str
    version: str
    threads: int
    texts: Sequence[str]

    def rates(self, batch_sizes: Sequence[int], *, sort: bool, engine: str) -> dict[int, float]:
        """Batch size → texts a second, measured in a process of its own.

        Raises:
            ProgramError: the process failed; its log is on stderr.
        """
        job = {
            "store": self.store,
            "model": self.model,
            "version": self.version,
            "threads": self.threads,
            "texts": list(self.texts),
            "runs": [{"batch_size": size, "sort": sort, "engine": engine} for size in batch_sizes],
        }
        rates = orjson.loads(_run_offline(orjson.dumps(job)))
        return dict(zip(batch_sizes, rates, strict=True))


def _run_offline(job: bytes) -> bytes:
    command = [sys.executable, "-P", "-m", "batchfleet.ops.demo.baseline"]
    process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        printed, _ = process.communicate(job, timeout=_BASELINE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ProgramError("the run without a fleet took too long") from error
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise ProgramError(f"the run without a fleet failed with exit code {process.returncode}")
    return bytes(printed)
