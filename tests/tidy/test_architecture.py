"""`docs/architecture.md` and `docs/extending.md` name files and functions that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
_PLACE = re.compile(r"\| `([a-z_/]+\.(?:py|lua))` \| (?:`([A-Za-z_.]+)`)? ?\|")
PLACES = _PLACE.findall(PAGE.read_text(encoding="utf-8"))


@cache
def defined(path):
    """Names of functions and classes, those of methods with their class."""
    found = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if hasattr(one, "name")}
        if hasattr(node, "name"):
            found.add(node.name)
    return found


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_place_is_where_the_page_says(path, name):
    assert (ROOT / path).is_file()
    if name:
        assert name in defined(path)


def test_the_table_is_read():
    assert len(PLACES) > 20


def test_the_steps_of_an_addition_name_files_that_exist():
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"\b[a-z][a-z_]*/[\w./-]*", text))
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
