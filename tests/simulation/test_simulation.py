"""A part of the simulation that is quick enough for every run of the tests."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.options import options_of
from tests.simulation.simulation import simulate

_ROOT = Path(__file__).parents[2]
_PORTIONS = [range(at, at + 10) for at in range(1, 101, 10)]


@pytest.mark.parametrize("seeds", _PORTIONS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_whatever_goes_wrong_the_promises_hold(seeds):
    outcomes = [simulate(seed) for seed in seeds]
    failures = {one.seed: one.failure for one in outcomes if one.failure is not None}
    assert failures == {}, "replay one with `make sim SEED=...`"
    assert sum(one.answers for one in outcomes) > 10 * len(seeds) // 2
    assert all(one.rest_ms > 0 for one in outcomes)


def digest_of(seed):
    """What happened in a simulation, to the last detail."""
    lines = "\n".join(map(str, simulate(seed).trace))
    return hashlib.sha256(lines.encode()).hexdigest()


def test_a_replay_is_exact():
    seeds = (3, 4, 5)
    here = [digest_of(seed) for seed in seeds]
    assert here == [digest_of(seed) for seed in seeds]
    assert len(set(here)) == len(seeds)
    code = f"from tests.simulation.test_simulation import *; print(*map(digest_of, {seeds}))"
    # Another process orders its sets differently.
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{_ROOT}:{_ROOT / 'tests'}"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=_ROOT, capture_output=True, check=True
    )
    assert told.stdout.decode().split() == here


def test_the_options_come_from_the_seed_alone():
    assert options_of(17) == options_of(17)
    assert len({options_of(seed).lines()[1] for seed in range(20)}) > 1
