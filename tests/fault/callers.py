"""Callers that go, and a fleet that grows and shrinks: F4, P11 and F25."""

import os
import subprocess
import sys
from functools import partial

from batchfleet import Client
from batchfleet.service.lifecycle import spawn
from tests.support.fleet import PATIENCE_S

from .arena import MODEL
from .moments import LONG_WORK, WORK
from .run import Run

PROBES = 8
_BURST = 12
_MANY = 4
_CALLER = """\
import json, sys
from batchfleet import Client

url, namespace, model, requests = sys.argv[1:]
with Client(url, namespace=namespace, keep=True) as client:
    handles = [
        client.submit(model, {"text": [text]}, id=name, timeout_ms=timeout_ms)
        for name, text, timeout_ms in json.loads(requests)
    ]
    print("submitted", flush=True)
    for handle in handles:
        client.result(handle)
    print("fetched", flush=True)
    sys.stdin.read()
"""


def runs():
    """All of them."""
    return [
        Run(name="f4.caller-killed.waiting", play=partial(kill_caller, after="submitted")),
        Run(
            name="p11.caller-killed.answered",
            play=partial(kill_caller, after="fetched"),
            quick=True,
        ),
        Run(name="f25.scale", play=scale, quick=True),
    ]


def kill_caller(stage, *, after):
    """A caller dies; what it submitted is answered all the same, and another one may fetch it."""
    fleet = stage.arena.fleet
    requests = stage.load.announce(_BURST, switch=WORK if after == "fetched" else LONG_WORK)
    command = [sys.executable, "-c", _CALLER, fleet.url, fleet.namespace, MODEL, requests]
    caller = spawn(
        command,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with caller:
        while (said := caller.stdout.readline().decode().strip()) != after:
            assert said, "the caller ended by itself"
        stage.load.note_announced()
        stage.fault("the caller is killed")
        caller.kill()
        caller.wait(PATIENCE_S)
    stage.load.collect()
    with Client(fleet.url, namespace=fleet.namespace, keep=True) as other:
        for name in stage.load.submitted:
            assert other.result((MODEL, name), PATIENCE_S).id == name
    stage.load.submit(PROBES)


def scale(stage):
    """4 → 1 → 4 workers under load: nothing is refused, and those that go leave in good order."""
    arena = stage.arena
    arena.ensure(workers=_MANY)
    for workers in (1, _MANY, 1):
        stage.load.submit(4 * _BURST, switch=WORK)
        leaving = arena.steady["consumer"][workers:]
        arena.ensure(workers=workers)
        assert [program.process.returncode for program in leaving] == [0] * len(leaving)
