"""Many models, and many rows, on one worker: who is slowed down, and how far."""

import asyncio
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter

import numpy as np

from batchfleet.producer.async_client import AsyncClient
from tests.support.fleet import draft_of

from .own_fleet import own_fleet
from .promise import at_least, at_most

_MODELS = [f"m{at}" for at in range(10)]
_VERSIONS = ("1", "2")
_ROWS = 300
_SINGLES = 8
_CALLERS = 64


def _stub(model):
    return draft_of("device_stub", model)


def ten_models(*, quick):
    """A lone caller of one model alone; then of ten models with two versions each, in turn."""
    count = 200 if quick else 1000
    drafts = [draft_of("echo", model, version=v) for model in _MODELS for v in _VERSIONS]
    with own_fleet(drafts[0]) as fleet:
        one_ms = asyncio.run(_lone_p50_ms(fleet, [(_MODELS[0], "1")], count))
        for draft in drafts[1:]:
            fleet.deploy(draft)
        for draft in drafts[1:]:
            fleet.wait_served(draft.model, draft.version)
            fleet.wait_routed(draft.model)
        pairs = [(draft.model, draft.version) for draft in drafts]
        ten_ms = asyncio.run(_lone_p50_ms(fleet, pairs, count))
    return [at_most("ten models with two versions each ÷ one model: p50", ten_ms / one_ms, 1.3)]


async def _lone_p50_ms(fleet, pairs, count):
    waits_ms = []
    async with _client(fleet) as client:
        for model, version in pairs:
            await client.infer(model, "first", version=version)
        for at in range(count):
            model, version = pairs[at % len(pairs)]
            began = perf_counter()
            await client.infer(model, "hello", version=version)
            waits_ms.append((perf_counter() - began) * 1000)
    return median(waits_ms)


def two_models(*, quick):
    """Two models, each saturated alone; then both at once."""
    seconds = 3.0 if quick else 8.0
    with own_fleet(_stub("a"), _stub("b")) as fleet:
        own = [asyncio.run(_saturate(fleet, [model], seconds)) for model in "ab"]
        mixed = asyncio.run(_saturate(fleet, ["a", "b"], seconds))
    shares = [mixed[model] / alone[model] for alone, model in zip(own, "ab", strict=True)]
    return [
        at_least("two models at saturation: least share of its own mean batch", min(shares), 0.8)
    ]


async def _saturate(fleet, models, seconds):
    """Model → rows in its mean batch."""
    batches = {model: [] for model in models}
    rng = np.random.default_rng(7)
    lengths = np.clip(rng.lognormal(3.3, 0.8, 4096), 1, 250).astype(int)
    over = perf_counter() + seconds
    async with _client(fleet) as client:

        async def call(model, at):
            while perf_counter() < over:
                result = await client.infer(model, "x" * int(4 * lengths[at % len(lengths)]))
                batches[model].append(result.receipt["batch"])
                at += _CALLERS

        async with asyncio.TaskGroup() as group:
            for model in models:
                for at in range(_CALLERS):
                    group.create_task(call(model, at))
    return {model: len(found) / len(set(found)) for model, found in batches.items()}


def many_rows_among_singles(*, quick):
    """Single rows in a closed loop without, then with requests of many rows among them."""
    seconds = 4.0 if quick else 12.0
    with own_fleet(_stub("rows")) as fleet:
        without_ms, _ = asyncio.run(_singles(fleet, seconds, with_many=False))
        with_ms, many = asyncio.run(_singles(fleet, seconds, with_many=True))
    return [
        at_most(
            f"a request of {_ROWS} rows among singles ÷ without: p99 of the singles",
            with_ms / without_ms,
            2,
        ),
        at_least(f"… requests of {_ROWS} rows answered meanwhile", many, 1),
    ]


async def _singles(fleet, seconds, *, with_many):
    """The singles' p99 in milliseconds, and how many large requests were answered meanwhile."""
    waits_ms, many = [], 0
    rng = np.random.default_rng(7)
    lengths = np.clip(rng.lognormal(3.3, 0.8, 4096), 1, 250).astype(int)
    texts = ["x" * int(4 * length) for length in lengths]
    over = perf_counter() + seconds
    async with _client(fleet) as client:
        await client.infer("rows", texts[:8])

        async def single(at):
            while perf_counter() < over:
                began = perf_counter()
                await client.infer("rows", texts[at % len(texts)])
                waits_ms.append((perf_counter() - began) * 1000)
                at += _SINGLES

        async def large():
            nonlocal many
            while perf_counter() < over:
                await client.infer("rows", texts[:_ROWS])
                many += 1

        async with asyncio.TaskGroup() as group:
            for at in range(_SINGLES):
                group.create_task(single(at))
            if with_many:
                group.create_task(large())
    return float(np.percentile(waits_ms, 99)), many


@asynccontextmanager
async def _client(fleet):
    async with AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default") as client:
        yield client
