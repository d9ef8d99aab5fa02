"""`make fault`, judged by its last line."""

import importlib.util

from benchmarks.processes import run_for_json
from tests.support.server import KINDS

from .promise import at_least, equals, skipped

_MODULE = "tests.fault"
_TIMEOUT_S = 1800.0
_RUNS, _RUNS_QUICK = 60, 1
_QUICK = ("--quick", "f5.")


def fault_matrix(*, quick):
    """Every fault at every moment, on the first kind of server; quick: broken connections only."""
    if importlib.util.find_spec(_MODULE) is None:
        return [skipped("make fault", f"there is no {_MODULE} to run")]
    arguments = ["--server", KINDS[0], *(_QUICK if quick else ())]
    finished = run_for_json(_MODULE, arguments, _TIMEOUT_S)
    line = finished.last_line
    return [
        equals("make fault: exit code", finished.exit_code, 0),
        equals("… runs that failed", _names(line["failed"]), "none"),
        equals("… runs that could not be played", _names(line["not_played"]), "none"),
        at_least("… runs", line["runs"], _RUNS_QUICK if quick else _RUNS),
        at_least("… requests in their histories", line["requests"], line["runs"]),
        # What the server's persistence does not promise is forgiven there, and printed.
        equals("… accepted requests lost", line["lost"], 0),
        equals("… answered twice", line["duplicate_answers"], 0),
        equals("… wrong answers", line["wrong"], 0),
        equals("… answers later than the deadline and 2 s", line["late"], 0),
    ]


def _names(runs):
    return ", ".join(runs) or "none"
