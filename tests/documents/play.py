"""A document, done as it says: block after block, in a folder of its own."""

import re
import shutil
import tempfile
from pathlib import Path

from documents.blocks import (
    PYTHON,
    SHELL,
    commands_of,
    promised_lines,
    read_blocks,
    reason_left_out,
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
        self._terminal = None
        self._ran = []

    def _open(self):
        self._folder.mkdir()
        self._add_belongings()
        self._terminal = Terminal(self._folder, self._scratch)

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
        """Do everything up to and with this block; returns what was run for it.

        A block that was tried is not tried again: its own test tells why it failed.
        """
        if self._terminal is None:
            self._open()
        self._ran = []
        while self._left and self._left[0].line <= block.line:
            self._do(self._left.pop(0))
        return self._ran

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
        self._ran.append(ran)
        assert ran.exit_code == 0, f"{command} ended with {ran.exit_code}: {ran.shown}"
        return ran.shown

    def close(self):
        try:
            if self._terminal is not None:
                self._terminal.close()
        finally:
            shutil.rmtree(self._scratch)


def check_shown(expected, ran):
    """What ran showed what belongs to it: beginning of a command → pattern of a line."""
    for one in ran:
        for start, pattern in expected.items():
            if one.command.startswith(start):
                assert re.search(pattern, one.shown, re.MULTILINE), f"{one.command}: {one.shown}"


def unused(expected, blocks):
    """What is expected of commands that no block has."""
    commands = [command for block in blocks for command in commands_to_run(block)]
    return [start for start in expected if not any(line.startswith(start) for line in commands)]


def commands_to_run(block):
    """The commands of a shell block that are not left out."""
    found = commands_of(block.text) if block.language == SHELL else []
    return [command for command in found if reason_left_out(command) is None]
