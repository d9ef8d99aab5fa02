"""Many models, and many rows, on one worker: who is slowed down, and how far."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
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
_REQUESTS = 100


def _stub(model):
    return draft_of("device_stub", model)


def ten_models(*, quick):
    """A lone caller in a fleet of one model and in one of ten with two versions each, in turns."""
    rounds = 2 if quick else 8
    drafts = [draft_of("echo", model, version=v) for model in _MODELS for v in _VERSIONS]
    pairs = [(draft.model, draft.version) for draft in drafts]
    with own_fleet(drafts[0]) as one, own_fleet(*drafts) as ten:
        waits_ms = asyncio.run(_lone_callers([(one, pairs[:1]), (ten, pairs)], rounds))
    one_ms, ten_ms = map(median, waits_ms)
    return [at_most("ten models with two versions each ÷ one model: p50", ten_ms / one_ms, 1.3)]


async def _lone_callers(parts, rounds):
    """For each fleet how long its requests took, in milliseconds."""
    waits_ms = [[] for _ in parts]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(fleet)) for fleet, _ in parts]
        for at in range(rounds + 1):
            for found, client, (_, pairs) in zip(waits_ms, clients, parts, strict=True):
                some_ms = await _one_after_another(client, pairs)
                if at:  # the first round opens what is opened once
                    found.extend(some_ms)
    return waits_ms


async def _one_after_another(client, pairs):
    waits_ms = []
    for at in range(_REQUESTS):
        model, version = pairs[at % len(pairs)]
        began = perf_counter()
        await client.infer(model, "hello", version=version)
        waits_ms.append((perf_counter() - began) * 1000)
    return waits_ms


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
