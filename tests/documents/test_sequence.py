"""Pictures of steps between columns."""

import xml.etree.ElementTree as ET

import pytest
from documents.sequence import THEMES, sequence_svg

TEXT = """
a: first, its words
b: second, more <words>

a -> b: there & back
b: alone
b -> a: 2 > 1
"""


def elements(theme="light", text=TEXT):
    root = ET.fromstring(sequence_svg(text, THEMES[theme]))  # noqa: S314 - our own
    return root, lambda name: list(root.iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def test_it_is_svg_with_all_words_inside():
    root, found = elements()
    words = [node.text for node in found("text")]
    assert words == [
        "first",
        "its words",
        "second",
        "more <words>",
        "there & back",
        "alone",
        "2 > 1",
    ]
    width, height = (float(root.get(name)) for name in ("width", "height"))
    assert all(0 < float(node.get("x")) < width for node in found("text"))
    assert all(0 < float(node.get("y")) < height for node in found("text"))


def test_a_message_points_from_its_source_to_its_target():
    _, found = elements()
    there, back = (line for line in found("line") if line.get("marker-end"))
    assert float(there.get("x1")) < float(there.get("x2"))
    assert float(back.get("x1")) > float(back.get("x2"))
    assert float(there.get("y1")) < float(back.get("y1"))


def test_themes_differ_in_colours_only():
    light, dark = (elements(theme)[1]("text") for theme in ("light", "dark"))
    assert [node.text for node in light] == [node.text for node in dark]
    assert sequence_svg(TEXT, THEMES["light"]) != sequence_svg(TEXT, THEMES["dark"])


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no column c: a -> c: x"):
        sequence_svg("a: A, a\n\na -> c: x", THEMES["light"])
