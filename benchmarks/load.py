"""What every load client does, whatever it sends: closed-loop bursts on command."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from .bursts import Load, percentiles_ms

Send = Callable[[], Awaitable[Any]]
"""Sends one request and returns when its answer is there."""


async def run_burst(send: Send, load: Load) -> dict[str, float]:
    """Run one burst; returns the fields of `Burst` that a client can measure."""
    waited_s: list[float] = []
    remaining = iter(range(load.requests))

    async def call() -> None:
        for _ in remaining:
            sent = time.perf_counter()
            await send()
            waited_s.append(time.perf_counter() - sent)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(load.callers):
            group.create_task(call())
    duration_s = time.perf_counter() - started
    p50_ms, p99_ms = percentiles_ms(waited_s)
    return {
        "requests": len(waited_s),
        "duration_s": duration_s,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
    }


async def serve_bursts(send: Send) -> None:
    """Say that we are ready, then run a burst for each line on stdin, until it closes."""
    _say({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        _say(await run_burst(send, Load(**orjson.loads(line))))


def _say(value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()
