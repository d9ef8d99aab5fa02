"""The tables of what attackers tried and of threats: each row is there once, with its tests."""

import ast
from collections import Counter
from pathlib import Path

from support.reported import ATTACKERS, SECURITY, nodes_of, rows_of

TESTS = Path(__file__).parents[1]
ROWS = [f"X{number}" for number in range(1, 16)]
# T6, T10, T13 and T15 come with HTTP, metrics and TLS.
THREATS = [f"T{number}" for number in (*range(1, 6), *range(7, 10), 11, 12, 14, 16, 17, 18)]


def docstrings_of(path):
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, functions)
    }


def named(cells):
    """The docstrings of the tests that a row names; KeyError where one does not exist."""
    return {f"{path}::{name}": docstrings_of(path)[name] for path, name in nodes_of(cells[-1])}


def test_each_row_of_attackers_is_there_once_with_a_rule():
    found = rows_of(ATTACKERS, r"X\d+")
    assert Counter(cells[0] for cells in found) == Counter(ROWS)
    assert all(len(cells) == 3 and cells[1] for cells in found)
    assert [cells[0] for cells in found if len(named(cells)) < 2] == []


def test_each_threat_has_a_test_that_names_it():
    found = rows_of(SECURITY, r"T\d+")
    assert Counter(cells[0] for cells in found) == Counter(THREATS)
    unnamed = [
        cells[0]
        for cells in found
        if not any(_names(text, cells[0]) for text in named(cells).values())
    ]
    assert unnamed == []


def _names(docstring, threat):
    head = docstring.partition(": ")[0]
    return threat in head.split(", ")


def test_a_row_is_named_by_its_tests():
    """X8, for instance, by the first words of what its tests promise."""
    for cells in rows_of(ATTACKERS, r"X\d+"):
        texts = named(cells)
        assert not texts or any(_names(text, cells[0]) for text in texts.values()), cells[0]
