"""The echo model, which notes in a history every row that it begins with, and waits at gates.

Published as a file of its own; the device process imports it by no package.
"""

import json
import os
import threading
from pathlib import Path
from time import monotonic

from batchfleet.models.runtimes.echo import Echo

MANIFEST = {"parameters": {"faults": True, "history": "HISTORY"}}
GATE = "gate="
# Below the limit of `predict`: a gate that nobody opens must not end the process.
_GATE_TIMEOUT_S = 8.0
_LOOK_S = 0.01


class Told(Echo):
    """A row's text ends in ` id=<request>`; a row without it (a warm-up) leaves no line.

    A text that begins with `gate=<path>` is answered once a file lies there: whoever has seen its
    line in the history knows that it is being run, until he makes that file.
    """

    def load(self, context):
        super().load(context)
        # Appending is atomic, so that all device processes may share the file.
        path = context.parameters["history"]
        self._history = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def predict(self, rows, context):
        for row in rows:
            _, marked, request_id = row["text"].rpartition(" id=")
            if marked:
                os.write(self._history, _line(request_id))
        for row in rows:
            if row["text"].startswith(GATE):
                _wait_at(Path(row["text"].removeprefix(GATE).rpartition(" id=")[0]))
        return super().predict(rows, context)


def _wait_at(gate):
    give_up = monotonic() + _GATE_TIMEOUT_S
    pause = threading.Event()
    while not gate.exists() and monotonic() < give_up:
        pause.wait(_LOOK_S)


def _line(request_id):
    told = {
        "event": "computed",
        "at_ms": monotonic() * 1000,
        "pid": os.getpid(),
        "id": request_id,
    }
    return json.dumps(told).encode() + b"\n"
