"""Histories: what happened, one JSON object a line, told by whoever saw it.

Every line has `event`, `pid` and `at_ms` (monotonic: one clock for all processes of a machine).

    submitted   id, digest, expected, timeout_ms   the server has acknowledged the entry
    computed    id                                 a model began with a row (`told_model.py`)
    replied     id, outcome, digest, items, body   the reply key was read: how many items it has,
                                                   and a digest of the first one's bytes
    fault       name                               something was broken on purpose
    wiped                                          the server was made to forget what it had
"""

import os
import threading
from time import monotonic

import orjson


class History:
    """Writes one file; any thread may tell."""

    def __init__(self, path):
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def tell(self, event, **fields):
        line = {"event": event, "at_ms": monotonic() * 1000, "pid": os.getpid(), **fields}
        with self._lock:
            self._file.write(orjson.dumps(line) + b"\n")

    def copy(self, lines):
        """Take over lines as they are."""
        for line in lines:
            self._file.write(orjson.dumps(line) + b"\n")

    def close(self):
        self._file.close()


def read_history(path):
    """The lines of a file; one that was cut off by a kill in its middle is left out."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [orjson.loads(line) for line in whole.splitlines()]


def read_histories(folder):
    """The lines of all files of a folder, oldest first."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in read_history(path)]
    return sorted(lines, key=lambda line: line["at_ms"])
