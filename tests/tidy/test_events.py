"""The catalogue of events against the code: each is emitted somewhere, with exactly its fields."""

import ast
from pathlib import Path

from tidy.test_style import PACKAGE, python_files

from batchfleet.service.events import EVENTS


def emits():
    """(event, its fields) of each place in the product; None for fields that are made elsewhere."""
    for path in python_files(*PACKAGE):
        text = Path(path).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".emit(" in text else ():
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr == "emit":
                (name,) = node.args
                yield name.value, [keyword.arg for keyword in node.keywords]


def test_every_event_of_the_catalogue_is_emitted_and_no_other():
    found = list(emits())
    assert {name for name, _ in found} == set(EVENTS)
    odd = [
        (name, fields)
        for name, fields in found
        if None not in fields and set(fields) != set(EVENTS[name].fields)
    ]
    assert not odd
