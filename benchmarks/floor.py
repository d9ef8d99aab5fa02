"""How far we are from the least that a queue with a router hop can cost.

`python -m benchmarks.floor`: the model `noop` against a raw queue (`raw_floor/`), on the same
server program, with the same payload, in turn. The last line on stdout is one JSON object.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from .bursts import (
    Burst,
    Load,
    median_cpu_us_per_request,
    median_of,
    p50_ms,
    p99_ms,
    ratios,
    throughput_per_s,
)
from .contest import interleave
from .contestants import OURS, RAW, ours, raw_floor
from .quiet import Calm, wait_until_quiet

# 32 costs a tenth more CPU for one request; between 64 and 256 there is no difference to be seen.
MAX_BATCH_SIZE = 64
PROCESSES = ("client", "router", "consumer", "device", "server")

Bursts = Mapping[str, Sequence[Burst]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure."""

    pairs: int
    many: Load
    single: Load


FULL = Plan(pairs=7, many=Load(requests=20_000, callers=256), single=Load(requests=700, callers=1))
QUICK = Plan(pairs=2, many=Load(requests=3_000, callers=256), single=Load(requests=100, callers=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Bursts of both contestants: with many callers, and with one."""

    many: Bursts
    single: Bursts


def measure(plan: Plan, max_batch_size: int) -> Found:
    """Start both contestants and let them take turns.

    Raises:
        MeasuringError, BatchfleetError: a process failed.
    """
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(ours({"max_batch_size": max_batch_size})),
            stack.enter_context(raw_floor()),
        ]
        many = interleave(contestants, plan.many, plan.pairs, _report)
        single = interleave(contestants, plan.single, plan.pairs, _report)
        return Found(many=many, single=single)


def _report(name: str, burst: Burst) -> None:
    print(
        f"{name:10} {burst.throughput_per_s:8.0f}/s  p50 {burst.p50_ms:7.3f} ms",
        file=sys.stderr,
    )


def summary(found: Found, max_batch_size: int, calm: Calm | None) -> dict[str, Any]:
    """The JSON line. Ratios are ours ÷ floor: medians of the pairs, and each pair in order.

    CPU is that of one request at many callers; its ratio holds on a busy machine too.
    """
    ours_cpu_us, floor_cpu_us = _cpu_us(found.many[OURS]), _cpu_us(found.many[RAW])
    throughputs = ratios(found.many[OURS], found.many[RAW], throughput_per_s)
    latencies = ratios(found.single[OURS], found.single[RAW], p50_ms)
    return {
        "noop_vs_floor": round(median(throughputs), 3),
        "latency_vs_floor": round(median(latencies), 3),
        "ours_per_s": round(median_of(found.many[OURS], throughput_per_s)),
        "floor_per_s": round(median_of(found.many[RAW], throughput_per_s)),
        "ours_p50_ms": round(median_of(found.single[OURS], p50_ms), 3),
        "floor_p50_ms": round(median_of(found.single[RAW], p50_ms), 3),
        "cpu_vs_floor": round(ours_cpu_us["all"] / floor_cpu_us["all"], 3),
        "ours_cpu_us": ours_cpu_us,
        "floor_cpu_us": floor_cpu_us,
        "throughput_ratios": [round(ratio, 3) for ratio in throughputs],
        "latency_ratios": [round(ratio, 3) for ratio in latencies],
        "max_batch_size": max_batch_size,
        "busy_percent_before": None if calm is None else calm.busy_percent,
    }


def _cpu_us(bursts: Sequence[Burst]) -> dict[str, float]:
    spent = {name: round(us, 1) for name, us in median_cpu_us_per_request(bursts).items()}
    return {**spent, "all": round(sum(spent.values()), 1)}


def table(found: Found, plan: Plan) -> Table:
    """Medians of both contestants side by side."""
    drawn = Table(title="medians over the bursts; CPU in µs for one request", title_justify="left")
    drawn.add_column("")
    for heading in ("callers", "requests/s", "p50 ms", "p99 ms", *PROCESSES, "all"):
        drawn.add_column(heading, justify="right")
    for load, bursts in ((plan.many, found.many), (plan.single, found.single)):
        for name in (OURS, RAW):
            drawn.add_row(*_row(name, load, bursts[name]), end_section=name == RAW)
    return drawn


def _row(name: str, load: Load, bursts: Sequence[Burst]) -> list[str]:
    spent = _cpu_us(bursts)
    return [
        name,
        str(load.callers),
        f"{median_of(bursts, throughput_per_s):.0f}",
        f"{median_of(bursts, p50_ms):.3f}",
        f"{median_of(bursts, p99_ms):.3f}",
        *(f"{spent[process]:.1f}" if process in spent else "–" for process in PROCESSES),
        f"{spent['all']:.1f}",
    ]


@click.command()
@click.option("--pairs", type=click.IntRange(1, 100), help="Pairs of bursts of each kind.")
@click.option("--quick", is_flag=True, help="A rehearsal: small bursts, no wait for quiet.")
@click.option("--json", "only_json", is_flag=True, help="Print the line of JSON and no table.")
@click.option(
    "--max-batch-size", default=MAX_BATCH_SIZE, show_default=True, help="Of the model noop."
)
def main(*, pairs: int | None, quick: bool, only_json: bool, max_batch_size: int) -> None:
    """Measure throughput at 256 callers and latency at one, against a raw queue."""
    base = QUICK if quick else FULL
    plan = Plan(pairs=pairs or base.pairs, many=base.many, single=base.single)
    calm = None if quick else wait_until_quiet()
    if calm is not None:
        print(calm, file=sys.stderr)
    found = measure(plan, max_batch_size)
    if not only_json:
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table(found, plan))
        console.print(f"noop runs with max_batch_size {max_batch_size}, one router, one worker")
    print(orjson.dumps(summary(found, max_batch_size, calm)).decode(), flush=True)


if __name__ == "__main__":
    main()
