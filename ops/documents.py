"""Draws the generated documents: `python -m batchfleet.ops.documents [FOLDER]`, or `make docs`."""

import sys
from pathlib import Path

from ..broker.errors import codes_markdown
from ..broker.rights import rights_markdown
from ..service.events import catalogue_markdown
from ..wire.states import states_markdown

DOCUMENTS = {
    "events.md": catalogue_markdown,
    "rights.md": rights_markdown,
    "server-errors.md": codes_markdown,
    "states.md": states_markdown,
}


def draw(folder: Path) -> list[Path]:
    """Write every generated document into `folder`; returns their paths."""
    paths = []
    for name, text in DOCUMENTS.items():
        path = folder / name
        path.write_text(text(), encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
