"""README.md, done as written."""

import pytest
from documents.play import blocks_of, check_shown, commands_to_run, unused

DOCUMENT = "README.md"
BLOCKS = blocks_of(DOCUMENT)
# Beginning of a command → what it must show, where the page tells of it.
SHOWN = {
    "batchfleet infer minilm": r"^embedding +FP32 \[1, 384\]",
    "redis-cli -s ${BATCHFLEET_REDIS_URL#unix://} XADD": r"^\d+-\d+$",
    "redis-cli -s ${BATCHFLEET_REDIS_URL#unix://} BLMOVE": r'"status": ?"ok"',
    "batchfleet models try": r"HELLO WORLD",
    "batchfleet models publish": r"^shout/1 is in the store",
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_works_as_written(play, block):
    ran = play.reach(block)
    check_shown(SHOWN, ran)
    assert len(ran) >= len(commands_to_run(block))


def test_nothing_is_expected_of_commands_that_are_gone():
    assert unused(SHOWN, BLOCKS) == []
    assert sum(len(commands_to_run(block)) for block in BLOCKS) >= 10
