"""The tables of reported faults: each is there once, and what it names exists."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from support.reported import OTHERS, STRANGERS, nodes_of, rows_of

ROOT = Path(__file__).parents[2]
_NODE = re.compile(r"`([\w/]+\.py)::(\w+)`")
# What a cell says where it names no test, or where its tests show a part of it only.
_REASON = re.compile(r"(?:^|; )(?:cannot occur|later): \S+")


def _lettered(number, letters):
    return [f"A{number}{letter}" for letter in letters]


INTERLEAVINGS = [
    *_lettered(1, "abce"),
    *("A2", "A3"),
    *_lettered(4, "abcde"),
    *(f"A{number}" for number in range(5, 12)),
    *_lettered(12, "abc"),
    "A13",
    *_lettered(14, "abcd"),
    *("A15", "A16"),
    *_lettered(17, "abcdefghi"),
]
REPORTS = [f"B{number:02}" for number in range(1, 57)]
# A number that is missing here was never given.
_DELIVERY = (1, 2, *range(4, 9), *range(10, 20), *range(21, 37), 101)
_BATCHING = (37, *range(39, 49), *range(50, 63))
_TIME_OUTS = range(63, 70)
_RESULTS = (88, 89, 91, 92, 93)
PEERS = [f"P{number}" for number in (*_DELIVERY, *_BATCHING, *_TIME_OUTS, *_RESULTS)]


STRANGERS_ROWS = [
    *("F1", "F2"),
    *(f"B{number}" for number in (1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 18)),
    *(f"C{number}" for number in (7, 8, *range(13, 23))),
    *(f"M{number}" for number in (1, 2, *range(8, 20))),
]


def rows():
    """The cells of each fault of others, the last of which says what holds it off."""
    return rows_of(OTHERS, r"[ABP]\d+[a-z]?")


def rows_of_strangers():
    """The same of what strangers ran into."""
    return rows_of(STRANGERS, r"[A-Z]\d+")


def functions_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_fault_is_there_once():
    found = Counter(cells[0] for cells in rows())
    wanted = Counter([*INTERLEAVINGS, *REPORTS, *PEERS])
    assert found == wanted


def test_every_row_is_whole_and_names_a_test_or_a_reason():
    assert {len(cells) for cells in rows()} == {3, 4}
    for cells in rows():
        assert all(cells), cells
        assert _NODE.search(cells[-1]) or _REASON.search(cells[-1]), cells[-1]
        assert "`" not in _NODE.sub("", cells[-1]) or _REASON.search(cells[-1]), cells[-1]


def test_reports_name_where_they_were_made():
    reported = [cells for cells in rows() if cells[0][0] in "BP"]
    assert all(re.search(r"\w/[\w.-]+[#@]\w+", cells[1]) for cells in reported)


def test_every_row_of_strangers_is_there_once_with_its_rule_and_two_tests():
    """The case itself, and a sibling that was not reported."""
    found = rows_of_strangers()
    assert Counter(cells[0] for cells in found) == Counter(STRANGERS_ROWS)
    assert all(len(cells) == 3 and cells[1] for cells in found)
    assert [cells[0] for cells in found if len(nodes_of(cells[-1])) < 2] == []


def test_every_named_test_exists():
    tables = [*rows(), *rows_of_strangers()]
    named = {node for cells in tables for node in nodes_of(cells[-1])}
    known = {path: functions_of(ROOT / "tests" / path) for path in {path for path, _ in named}}
    missing = sorted(f"{path}::{name}" for path, name in named if name not in known[path])
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("cell", "is_reason"),
    [
        ("later: sessions", True),
        ("`unit/x.py::test_y`; later: Sentinel", True),
        ("cannot occur: there is no pool", True),
        ("perhaps later", False),
        ("later:", False),
    ],
)
def test_what_counts_as_a_reason(cell, is_reason):
    assert bool(_REASON.search(cell)) is is_reason
