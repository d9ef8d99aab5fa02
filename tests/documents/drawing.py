"""Draws the generated documents: `python -m tests.documents.drawing [FOLDER]`, or `make docs`."""

import sys
from pathlib import Path

from .generated import catalogue_markdown, codes_markdown, rights_markdown, states_markdown
from .sequence import THEMES, sequence_svg

DOCUMENTS = {
    "events.md": catalogue_markdown,
    "rights.md": rights_markdown,
    "server-errors.md": codes_markdown,
    "states.md": states_markdown,
}


def draw(folder: Path) -> list[Path]:
    """Write every generated document and picture into `folder`; returns their paths."""
    texts = {name: text() for name, text in DOCUMENTS.items()}
    for source in folder.glob("*.seq"):
        steps = source.read_text(encoding="utf-8")
        for name, theme in THEMES.items():
            texts[f"{source.stem}-{name}.svg"] = sequence_svg(steps, theme)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
