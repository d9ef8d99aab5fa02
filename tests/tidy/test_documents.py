"""What `make docs` draws is what lies in `docs/`."""

import shutil
from pathlib import Path

from documents.drawing import draw

DOCS = Path(__file__).parents[2] / "docs"


def test_generated_documents_and_pictures_are_up_to_date(tmp_path):
    for source in DOCS.glob("*.seq"):
        shutil.copy(source, tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in draw(tmp_path)}
    assert len(drawn) >= 6
    stale = [name for name, text in drawn.items() if (DOCS / name).read_text("utf-8") != text]
    assert not stale, "run `make docs`"
