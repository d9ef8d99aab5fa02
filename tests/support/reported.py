"""Tables of faults that were reported: id, what is right, and the tests that hold it."""

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
OTHERS = DECISIONS / "0009-reported-faults.md"
STRANGERS = DECISIONS / "0011-what-strangers-ran-into.md"
ATTACKERS = DECISIONS / "0013-what-attackers-tried.md"
SECURITY = DECISIONS.parent / "security.md"
_NODE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows_of(table, ids):
    """The cells of the rows whose first cell matches the pattern `ids`."""
    pattern = re.compile(rf"^\| ({ids}) \|")
    lines = table.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if pattern.match(line)
    ]


def nodes_of(cell):
    """The tests that a cell names, as (file below `tests`, function)."""
    return _NODE.findall(cell)
