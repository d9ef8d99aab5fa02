"""docs/testing.md, done as written."""

import pytest
from documents.blocks import commands_of
from documents.play import blocks_of, check_shown

from batchfleet.service.events import Events
from batchfleet.service.fault_points import VARIABLE, ArmedFaultPoints, find_fault_points

DOCUMENT = "docs/testing.md"
BLOCKS = blocks_of(DOCUMENT)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_works_as_written(play, block):
    ran = play.reach(block)
    check_shown({"python -m pytest": r"^1 passed"}, ran)
    assert len(ran) == (0 if block.text.startswith("make ") else 1)


def test_the_example_of_fault_points_is_one():
    lines = [line for block in BLOCKS for line in commands_of(block.text)]
    (line,) = [line for line in lines if line.startswith(VARIABLE)]
    value = line.partition("=")[2].strip('"')
    assert isinstance(find_fault_points({VARIABLE: value}, Events()), ArmedFaultPoints)
