"""What a model does to its process: F19 and F22. Only the culprit fails, the rest is answered."""

import os
import signal
from functools import partial

from tests.support.fleet import until

from .arena import LEASE_MS, LIMITS, MODEL
from .moments import WORK
from .provoking import provoked
from .run import Run

NEIGHBOURS = 6
SHORT_LIMIT_MS = 700
# Switch → (error of the culprit, errors that its batch may get too, ends the device process).
CULPRITS = {
    "raise": ("model_error", (), False),
    "memory_error": ("device_memory", (), False),
    "nan": ("bad_output", (), False),
    "wrong_count": ("bad_output", ("bad_output",), False),
    "segv": ("poison", (), True),
    "hang": ("time_limit", (), True),
}
# A culprit ends the process twice: in company, and alone.
DEATHS = 2
# One that raises has its batch of four run again in halves, until it is alone.
HALVINGS = 2


def runs():
    """All of them."""
    found = [
        Run(name=f"f19.{switch}", play=partial(culprit, switch), quick=switch in ("segv", "hang"))
        for switch in CULPRITS
    ]
    found += [
        Run(name="f19.device-killed", play=kill_device, quick=True),
        Run(name="f19.device-frozen", play=freeze_device),
    ]
    found += [
        Run(
            name=f"f22.hold-gil.{stage}",
            play=partial(hold_gil, stage),
            quick=stage == "predict",
            requests_min=1 + NEIGHBOURS,
        )
        for stage in ("preprocess", "predict", "postprocess")
    ]
    return found


def culprit(switch, stage):
    """One row misbehaves among others that do not."""
    error, shared, deadly = CULPRITS[switch]
    if switch == "hang":
        stage.arena.fleet.operator_sets(MODEL, predict_ms=SHORT_LIMIT_MS)
    for _ in range(DEATHS if deadly else HALVINGS):
        stage.fault(f"the model will {switch}")
    expected = ("ok", *shared)
    stage.load.submit(NEIGHBOURS, switch=WORK, expected=expected)
    stage.load.submit(1, switch=f"!{switch}", expected=(error,))
    stage.load.submit(NEIGHBOURS, switch=WORK, expected=expected)
    stage.load.collect()
    stage.load.submit(NEIGHBOURS)
    stage.load.collect()
    if switch == "hang":
        stage.arena.fleet.operator_sets(MODEL, predict_ms=LIMITS["predict_ms"])


def busy_device(stage, gate):
    """The only worker and its device process's id, which has work until the gate is opened."""
    (worker,) = stage.arena.steady["consumer"]
    pid = worker.device_pid()
    stage.load.submit(NEIGHBOURS, switch=gate.switch)
    provoked(lambda: gate.has_begun(pid), "the device process has work")
    return worker, pid


def kill_device(stage):
    """The device process is killed from outside; its worker lives on."""
    gate = stage.gate()
    worker, pid = busy_device(stage, gate)
    stage.fault("the device process is killed")
    os.kill(pid, signal.SIGKILL)
    gate.open()
    stage.load.submit(NEIGHBOURS)
    stage.load.collect()
    assert worker.is_running()


def freeze_device(stage):
    """The device process stands still for longer than its limit; its worker replaces it."""
    gate = stage.gate()
    worker, pid = busy_device(stage, gate)
    stage.fault("the device process is frozen")
    os.kill(pid, signal.SIGSTOP)
    gate.open()
    stage.arena.fleet.operator_sets(MODEL, predict_ms=SHORT_LIMIT_MS)
    until(lambda: worker.events("device.lost"), "its worker has noticed")
    stage.load.submit(NEIGHBOURS)
    stage.load.collect()
    stage.arena.fleet.operator_sets(MODEL, predict_ms=LIMITS["predict_ms"])


def hold_gil(where, stage):
    """A model holds the interpreter lock for three leases: run once, and nobody is buried."""
    living = stage.arena.living()
    stage.load.submit(1, switch=f"!hold_gil:{3 * LEASE_MS}@{where}")
    stage.load.submit(NEIGHBOURS)
    stage.load.collect()
    assert stage.arena.living() == living, "its worker was buried"
