"""README and the first steps, done as written: every block runs, and shows what it says."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from documents.blocks import commands_of, reason_left_out
from documents.play import ROOT, Play, blocks_of

from batchfleet.broker.embedded import find_server
from batchfleet.service.events import Events
from batchfleet.service.fault_points import VARIABLE, ArmedFaultPoints, find_fault_points

PLAYED = ("README.md", "docs/start.md", "docs/testing.md")
BLOCKS = [block for document in PLAYED for block in blocks_of(document)]

# (document, beginning of a command) → what it must show, where the document tells of it.
SHOWN = {
    ("README.md", "batchfleet infer minilm"): r"^embedding +FP32 \[1, 384\]",
    ("README.md", "redis-cli -u $BATCHFLEET_REDIS_URL XADD"): r"^\d+-\d+$",
    ("README.md", "redis-cli -u $BATCHFLEET_REDIS_URL BLMOVE"): r'"status": ?"ok"',
    ("README.md", "batchfleet models try"): r"HELLO WORLD",
    ("README.md", "batchfleet models publish"): r"^shout/1 is in the store",
    ("docs/start.md", "batchfleet models list"): r"minilm .* 1 ",
    ("docs/start.md", "batchfleet infer minilm"): r"384\]",
    ("docs/start.md", "batchfleet status"): r"minilm .* 1 \(stable\)",
    ("docs/start.md", "id=$(batchfleet submit"): r"\A\Z",
    ("docs/start.md", "batchfleet result minilm"): r"^embedding +FP32 \[1, 384\]",
    ("docs/start.md", "batchfleet requests show"): r"^state +ok",
    ("docs/start.md", "batchfleet models try model.py --text"): r"HELLO WORLD",
    (
        "docs/start.md",
        "batchfleet models try model.py --input",
    ): r"preprocess gave\n +text: \"hello",
    ("docs/start.md", "batchfleet infer shout"): r"HELLO WORLD",
    ("docs/start.md", "batchfleet infer my-model"): r"^embedding +FP32 \[1, 384\]",
    ("docs/testing.md", "python -m pytest"): r"^1 passed",
}


class Stage:
    """At most one document is being done at a time."""

    def __init__(self):
        self.play = None

    def of(self, document):
        if self.play is None or self.play.document != document:
            self.clear()
            self.play = Play(document)
        return self.play

    def clear(self):
        play, self.play = self.play, None
        if play is not None:
            play.close()


@pytest.fixture(scope="module")
def stage():
    found = Stage()
    yield found
    found.clear()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_works_as_written(stage, block):
    play = stage.of(block.document)
    first = len(play.ran)
    play.reach(block)
    for ran in play.ran[first:]:
        for pattern in patterns_of(block.document, ran.command):
            assert re.search(pattern, ran.shown, re.MULTILINE), f"{ran.command}: {ran.shown}"


def patterns_of(document, command):
    return [
        pattern
        for (page, start), pattern in SHOWN.items()
        if page == document and command.startswith(start)
    ]


def test_what_must_be_shown_belongs_to_commands_that_there_are():
    commands = [
        (block.document, command)
        for block in BLOCKS
        for command in ([] if block.language else commands_of(block.text))
    ]
    commands += [(b.document, "python -m pytest") for b in BLOCKS if b.is_test]
    stale = [
        (document, start)
        for document, start in SHOWN
        if not any(page == document and line.startswith(start) for page, line in commands)
    ]
    assert stale == []


def test_most_commands_are_run():
    commands = [command for b in BLOCKS if b.language == "" for command in commands_of(b.text)]
    run = [command for command in commands if reason_left_out(command) is None]
    assert len(run) >= 30
    assert {command.split()[0] for command in commands if command not in run} == {
        "make",
        "pip",
        "python3",
    }


def test_the_programs_of_the_environment_are_those_of_this_tree():
    program = Path(sys.executable).with_name("batchfleet")
    assert program.is_file(), f"{program} is missing: `make setup` installs it"
    assert shutil.which("bash"), "the blocks are for a shell"
    assert find_server(), "`batchfleet up` needs a server"


def test_the_example_of_fault_points_is_one():
    (line,) = [
        command
        for block in blocks_of("docs/testing.md")
        for command in commands_of(block.text)
        if command.startswith(VARIABLE)
    ]
    value = line.partition("=")[2].strip('"')
    assert isinstance(find_fault_points({VARIABLE: value}, Events()), ArmedFaultPoints)
    assert (ROOT / "docs/testing.md").is_file()
