"""Every row of a table of faults, by its tests: real servers, processes and clients."""

from collections import Counter

from benchmarks.processes import run_for_json
from tests.support.reported import nodes_of, rows_of

from .promise import equals

_TIMEOUT_S = 1800
_QUICK_ROWS = 3


def reported_rows(table, ids, *, quick):
    """One promise for each row of `table` whose id fits: all of its tests pass, none is skipped."""
    rows = rows_of(table, ids)[: _QUICK_ROWS if quick else None]
    named = {row[0]: [f"tests/{path}::{name}" for path, name in nodes_of(row[-1])] for row in rows}
    wanted = sorted({node for nodes in named.values() for node in nodes})
    outcomes = run_for_json("tests.support.outcomes", wanted, _TIMEOUT_S).last_line
    return [_promise(row, named[row[0]], outcomes) for row in rows]


def _promise(row, nodes, outcomes):
    told = Counter(outcome for node in nodes for outcome in outcomes.get(node, ["not run"]))
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(told.items()))
    return equals(f"{row[0]}: {row[1]}", shown or "no test", f"{sum(told.values())} passed")
