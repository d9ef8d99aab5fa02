"""Every document that shows commands or code is held by a test, and little is left out."""

import sys
from pathlib import Path

from documents.blocks import PYTHON, SHELL, commands_of, reason_left_out
from documents.play import ROOT, blocks_of

# Each in a test file of this folder.
HELD = {"README.md", "docs/start.md", "docs/models.md", "docs/testing.md", "docs/operating.md"}
# What shows commands or code and is not held here → why.
ALLOWED = {
    "CONTRIBUTING.md": "commands of make, which run the tests, and a drawing of the layers",
    "docs/extending.md": "commands of make, which run the tests",
    "docs/protocol.md": "the wire, held by tests/contract/test_protocol_document.py",
}


def pages():
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test_every_page_with_commands_or_code_is_held():
    showing = {
        page
        for page in pages()
        if any(block.language in (SHELL, PYTHON) for block in blocks_of(page))
    }
    assert showing == HELD | ALLOWED.keys()


def test_only_what_sets_up_the_environment_is_left_out():
    commands = [
        command
        for page in sorted(HELD)
        for block in blocks_of(page)
        if block.language == SHELL
        for command in commands_of(block.text)
    ]
    left_out = [command for command in commands if reason_left_out(command)]
    assert {command.split()[0] for command in left_out} == {"make", "pip", "python3"}
    assert len(commands) - len(left_out) >= 50


def test_the_environment_has_the_program_that_pages_show():
    program = Path(sys.executable).with_name("batchfleet")
    assert program.is_file(), f"{program} is missing: `make setup` installs it"
