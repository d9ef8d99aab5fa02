"""docs/start.md, done as written."""

import pytest
from documents.play import blocks_of, check_shown, commands_to_run, unused

DOCUMENT = "docs/start.md"
BLOCKS = blocks_of(DOCUMENT)
# Beginning of a command → what it must show, where the page tells of it.
SHOWN = {
    "batchfleet models list": r"minilm .* 1 ",
    "batchfleet infer minilm": r"384\]",
    "batchfleet status": r"minilm .* 1 \(stable\)",
    "id=$(batchfleet submit": r"\A\Z",
    "batchfleet result minilm": r"^embedding +FP32 \[1, 384\]",
    "batchfleet requests show": r"^state +ok",
    "batchfleet models try model.py --text": r"HELLO WORLD",
    "batchfleet models try model.py --input": r"preprocess returned\n +text: \"hello",
    "batchfleet infer shout": r"HELLO WORLD",
    "batchfleet infer my-model": r"^embedding +FP32 \[1, 384\]",
}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_works_as_written(play, block):
    ran = play.reach(block)
    check_shown(SHOWN, ran)
    assert len(ran) >= len(commands_to_run(block))


def test_nothing_is_expected_of_commands_that_are_gone():
    assert unused(SHOWN, BLOCKS) == []
    assert sum(len(commands_to_run(block)) for block in BLOCKS) >= 20
