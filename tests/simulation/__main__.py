"""`python -m tests.simulation [FIRST] [COUNT]` runs seeds; `--replay SEED` prints one's trace.

A failure prints its seed and the options that the seed stands for. Exit code 1 where one failed.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

import click

from .options import options_of
from .simulation import simulate

_PORTION = 25


@click.command()
@click.option("--first", default=1, help="the first seed")
@click.option("--count", default=2000, help="how many seeds")
@click.option("--replay", type=int, help="run this seed alone and print what happens")
@click.option("--processes", default=os.cpu_count(), help="how many run side by side")
def main(first, count, replay, processes):
    """Simulate a fleet on virtual time, once a seed."""
    sys.exit(replay_one(replay) if replay is not None else run_many(first, count, processes))


def replay_one(seed):
    """Print the options, the trace and the end of one simulation."""
    outcome = simulate(seed)
    print(f"seed {seed}", *options_of(seed).lines(), sep="\n")
    for at_ms, who, what in outcome.trace:
        print(f"{at_ms:>12.1f}  {who:<14} {what}")
    if outcome.failure is None:
        print(
            f"seed {seed} holds: {outcome.answers} answers, at rest after {outcome.rest_ms:.0f} ms"
        )
        return 0
    print(f"seed {seed} FAILS: {type(outcome.failure).__name__}: {outcome.failure}")
    return 1


def run_many(first, count, processes):
    """Run a range of seeds side by side; tell of failures as they come."""
    began_s = perf_counter()
    portions = [
        range(at, min(at + _PORTION, first + count)) for at in range(first, first + count, _PORTION)
    ]
    failed, answers, events = 0, 0, 0
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(_run_portion, portions):
            answers += found[0]
            events += found[1]
            for seed, failure in found[2]:
                failed += 1
                print(f"seed {seed} FAILS: {failure}", *options_of(seed).lines(), sep="\n")
                print(f"  replay: make sim SEED={seed}")
    print(
        f"{count} seeds from {first}: {failed} failed, {answers} answers, {events} events, "
        f"{perf_counter() - began_s:.0f} s"
    )
    # A run in which nothing happens proves nothing.
    return 1 if failed or answers < count else 0


def _run_portion(seeds):
    answers, events, failures = 0, 0, []
    for seed in seeds:
        outcome = simulate(seed)
        answers += outcome.answers
        events += len(outcome.trace)
        if outcome.failure is not None:
            failures.append((seed, f"{type(outcome.failure).__name__}: {outcome.failure}"))
    return answers, events, failures


if __name__ == "__main__":
    main()
