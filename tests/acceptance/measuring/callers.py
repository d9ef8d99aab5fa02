"""Callers that wait for their answers, and callers that come when they come."""

import asyncio
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from batchfleet.producer.async_client import AsyncClient

from .pause import pause


@dataclass(slots=True)
class Answered:
    """What callers saw of answered requests of one row: milliseconds waited, and receipts."""

    waits_ms: list[float] = field(default_factory=list)
    receipts: list[dict] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def per_s(self):
        return len(self.waits_ms) / self.duration_s

    @property
    def p50_ms(self):
        return float(np.percentile(self.waits_ms, 50))

    @property
    def p99_ms(self):
        return float(np.percentile(self.waits_ms, 99))

    @property
    def batches(self):
        """Rows of each batch."""
        return list({one["batch"]: one["rows"] for one in self.receipts}.values())

    @property
    def mean_batch(self):
        return sum(self.batches) / len(self.batches)

    def add(self, result, sent_at):
        self.waits_ms.append((perf_counter() - sent_at) * 1000)
        self.receipts.append(result.receipt)


def in_turns(fleet, model, inputs, callers):
    """So many callers send all of these; each waits for its answer before it takes the next one."""
    return asyncio.run(_in_turns(fleet, model, inputs, callers))


async def _in_turns(fleet, model, inputs, callers):
    found, rest = Answered(), iter(inputs)
    async with _client(fleet) as client:

        async def call():
            for one in rest:
                sent_at = perf_counter()
                found.add(await client.infer(model, one), sent_at)

        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(callers, len(inputs))):
                group.create_task(call())
    found.duration_s = perf_counter() - began
    return found


def by_chance(fleet, model, kinds, rate_per_s, seconds):
    """Requests that come independently of each other and of the answers.

    `kinds`: name → the texts of that kind; all kinds come equally often, from a fixed seed. Returns
    what was answered of each, all that came within `seconds`.
    """
    rng = np.random.default_rng(11)
    count = max(1, round(rate_per_s * seconds))
    gaps_s = rng.exponential(1 / rate_per_s, count)
    names = rng.permutation(np.resize(list(kinds), count))
    return asyncio.run(_by_chance(fleet, model, kinds, list(zip(gaps_s, names, strict=True))))


async def _by_chance(fleet, model, kinds, arrivals):
    found = {name: Answered() for name in kinds}
    async with _client(fleet) as client:

        async def call(name, text):
            sent_at = perf_counter()
            found[name].add(await client.infer(model, text), sent_at)

        began = due = perf_counter()
        async with asyncio.TaskGroup() as group:
            for at, (gap_s, name) in enumerate(arrivals):
                due += gap_s
                if due > perf_counter():
                    await pause(due - perf_counter())
                group.create_task(call(name, kinds[name][at % len(kinds[name])]))
    for one in found.values():
        one.duration_s = perf_counter() - began
    return found


def _client(fleet):
    return AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default")
