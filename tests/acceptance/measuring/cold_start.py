"""From the start of a worker until MiniLM serves: the first time, and when it was measured before.

Both beside a process that imports what is needed, loads the model, and ends.
"""

import shutil
import subprocess
import sys
from statistics import median
from time import perf_counter

import orjson

from batchfleet.models.importing import MINILM_AUTO, MINILM_EXACT
from benchmarks.processes import ROOT
from tests.support.fleet import until

from .encoders import READY_S, encoder_store
from .promise import at_most

_FIRST_S, _SECOND_S = 5.0, 1.0


def cold_start(*, quick):
    """In turns: import and load, a first start, a second start."""
    found = {MINILM_EXACT: [], MINILM_AUTO: []}
    for model, times in found.items():
        with encoder_store(model) as (fleet, _):
            for _ in range(1 if quick else 5):
                shutil.rmtree(fleet.folder / "cache", ignore_errors=True)
                times.append((_load_s(fleet, model), _start_s(fleet), _start_s(fleet)))
    return [promise for model, times in found.items() for promise in _promises(model, times)]


def _promises(model, times):
    loads_s, firsts_s, seconds_s = zip(*times, strict=True)
    load_s = median(loads_s)
    named = f"cold_start_s, {model}; import + load {load_s:.1f}"
    return [
        at_most(f"{named}: first start", median(firsts_s), load_s + _FIRST_S),
        at_most(f"{named}: second start", median(seconds_s), load_s + _SECOND_S),
    ]


def _load_s(fleet, model):
    """Seconds of a process that imports and loads, and does nothing else."""
    job = {
        "store": fleet.store.root,
        "model": model,
        "version": "1",
        "threads": 1,
        "texts": [],
        "runs": [],
    }
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-m", "batchfleet.ops.demo.baseline"],
        input=orjson.dumps(job),
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=READY_S,
    )
    return perf_counter() - began


def _start_s(fleet):
    """Seconds until a new worker has said that the model is ready."""
    began = perf_counter()
    program = fleet.start("consumer")
    until(lambda: program.events("lane.ready"), "the model is ready", READY_S)
    took_s = perf_counter() - began
    program.stop()
    return took_s
