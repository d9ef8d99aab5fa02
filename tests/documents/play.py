"""A document, done as it says: block after block, in a folder of its own."""

import shutil
import tempfile
from pathlib import Path

from documents.blocks import (
    PYTHON,
    SHELL,
    commands_of,
    promised_lines,
    read_blocks,
)
from documents.terminal import Terminal
from support.wheels import lock_file, make_wheel

from batchfleet.models.importing import MINILM, import_minilm
from batchfleet.models.store import Store

ROOT = Path(__file__).parents[2]
# Kept beside the tree, since the model is large: an import finds it and fetches nothing.
KEPT = ROOT / ".cache" / "store"


def blocks_of(document):
    return read_blocks(document, (ROOT / document).read_text(encoding="utf-8"))


class Play:
    """A document that is being done. Each block is done once, after all that come before it."""

    def __init__(self, document):
        self.document = document
        self._left = blocks_of(document)
        self._scratch = Path(tempfile.mkdtemp(prefix="batchfleet-document-"))
        self._folder = self._scratch / "folder"
        self._folder.mkdir()
        self._add_belongings()
        self._terminal = Terminal(self._folder, self._scratch)
        self.ran = []

    def _add_belongings(self):
        """What a document takes for the reader's own, and the model that is here already."""
        (self._folder / "x.json").write_text('{"text": ["hello world"]}')
        wheel = make_wheel(self._scratch / "wheels", "flavour", "1", "NAME = 'sour'\n")
        lock_file(self._folder / "requirements.lock", wheel)
        manifest = import_minilm(Store(str(KEPT)))
        place = Path(manifest.model) / manifest.version
        assert MINILM.files == manifest.files
        shutil.copytree(KEPT / place, self._folder / "store" / place)

    def reach(self, block):
        """Do everything up to and with this block; a block that failed before is not done again."""
        while self._left and self._left[0].line <= block.line:
            self._do(self._left.pop(0))

    def _do(self, block):
        if block.language == SHELL:
            for command in commands_of(block.text):
                self._run(command)
        elif block.language == PYTHON:
            self._do_program(block)
        else:
            raise AssertionError(f"{block} is in {block.language!r}, which is not run here")

    def _do_program(self, block):
        name = block.file_name or f"{'test_' if block.is_test else ''}line_{block.line}.py"
        (self._folder / name).write_text(block.text, encoding="utf-8")
        if block.file_name:
            return
        if block.is_test:
            self._run(f"python -m pytest -q -p no:cacheprovider {name}")
            return
        printed = self._run(f"python -W error {name}").splitlines()
        for promise in promised_lines(block.text):
            assert promise in printed, f"{block}: {promise!r} is not in {printed}"

    def _run(self, command):
        ran = self._terminal.run(command)
        if ran is None:
            return ""
        self.ran.append(ran)
        assert ran.exit_code == 0, f"{command} ended with {ran.exit_code}: {ran.shown}"
        return ran.shown

    def close(self):
        try:
            self._terminal.close()
        finally:
            shutil.rmtree(self._scratch)
