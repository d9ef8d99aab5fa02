"""Sequence diagrams as SVG, from a few lines of text.

The text has one line a step: `a -> b: label` for a message, `a: label` for something that happens
there. The lines before the first blank one name the columns from left to right, `a: title, what`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

_COLUMN_PX, _MARGIN_PX, _STEP_PX, _HEAD_PX = 210, 110, 34, 64
_BOX_PX = 196
_FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of a picture; the background is the page's."""

    text: str
    faint: str
    box: str


THEMES = {
    "light": Theme(text="#1f2328", faint="#8c959f", box="#ddf4ff"),
    "dark": Theme(text="#e6edf3", faint="#7d8590", box="#0c2d6b"),
}


def sequence_svg(text: str, theme: Theme) -> str:
    """Draw one.

    Raises:
        ValueError: a step names a column that there is not.
    """
    head, _, body = text.strip().partition("\n\n")
    columns = [line.partition(": ") for line in head.splitlines()]
    places = {name: _MARGIN_PX + at * _COLUMN_PX for at, (name, _, _) in enumerate(columns)}
    steps = [line for line in body.splitlines() if line.strip()]
    width = 2 * _MARGIN_PX + (len(columns) - 1) * _COLUMN_PX
    height = _HEAD_PX + (len(steps) + 1) * _STEP_PX
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {_FONT} font-size='12' fill='{theme.text}'>",
        f"<defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' "
        f"markerHeight='8' orient='auto'><path d='M0 0L8 4L0 8z' fill='{theme.text}'/></marker>"
        "</defs>",
    ]
    for name, _, words in columns:
        parts += _column(words, places[name], height, theme)
    for at, line in enumerate(steps, 1):
        parts += _step(line, places, _HEAD_PX + at * _STEP_PX, theme)
    return "\n".join([*parts, "</svg>", ""])


def _column(words: str, x: int, height: int, theme: Theme) -> Iterator[str]:
    title, _, what = words.partition(", ")
    yield (
        f"<line x1='{x}' y1='{_HEAD_PX - 8}' x2='{x}' y2='{height - 8}' stroke='{theme.faint}' "
        "stroke-dasharray='3 4'/>"
    )
    yield (
        f"<rect x='{x - _BOX_PX // 2}' y='6' width='{_BOX_PX}' height='46' rx='6' "
        f"fill='{theme.box}'/>"
    )
    yield _words(title, x, 25, "font-weight='bold'")
    yield _words(what, x, 43, f"font-size='11' fill='{theme.faint}'")


def _step(line: str, places: dict[str, int], y: int, theme: Theme) -> Iterator[str]:
    ends, _, label = line.partition(": ")
    source, arrow, target = ends.partition(" -> ")
    unknown = {source, target or source} - set(places)
    if unknown:
        raise ValueError(f"no column {', '.join(sorted(unknown))}: {line}")
    if not arrow:
        x = places[source]
        yield f"<circle cx='{x}' cy='{y - 4}' r='4' fill='{theme.text}'/>"
        # To the side where there is more room.
        side, anchor = (10, "start") if 2 * x < max(places.values()) + _MARGIN_PX else (-10, "end")
        yield _words(label, x + side, y, f"text-anchor='{anchor}'")
        return
    start, end = places[source], places[target]
    gap = 3 if end > start else -3
    yield (
        f"<line x1='{start + gap}' y1='{y}' x2='{end - gap}' y2='{y}' stroke='{theme.text}' "
        "marker-end='url(#tip)'/>"
    )
    yield _words(label, (start + end) // 2, y - 6)


def _words(text: str, x: int, y: int, more: str = "") -> str:
    anchor = "" if "text-anchor" in more else "text-anchor='middle' "
    return f"<text x='{x}' y='{y}' {anchor}{more}>{escape(text)}</text>"
