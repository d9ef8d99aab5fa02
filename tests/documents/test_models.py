"""The classes of docs/models.md: each can be published, is served, and answers as the page says."""

import importlib.util
import tomllib

import numpy as np
import pytest
from documents.play import blocks_of

from batchfleet import CallerError, ModelError
from batchfleet.models.code_rule import ENTRY_POINTS
from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.testing import serve

ALL = blocks_of("docs/models.md")
BLOCKS = {
    block.text.partition("class ")[2].partition("(")[0]: block
    for block in ALL
    if block.language == "python"
}


@pytest.fixture
def model_of(tmp_path):
    """The class of a block, read from a file that can be published."""

    def read(name):
        path = tmp_path / "model.py"
        path.write_text(BLOCKS[name].text, encoding="utf-8")
        draft, _ = draft_of_file(path, PublishOptions(model=name, version="1"))
        assert draft.code.class_name == name
        spec = importlib.util.spec_from_file_location(f"shown_{name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)

    return read


def test_every_block_is_a_class_that_is_asked_below():
    assert BLOCKS.keys() == {"Shout", "Mean", "Score", "Index"}
    assert len(BLOCKS) == len(ALL) - 1


def test_entry_points_are_shown_as_they_are_looked_for():
    """X12: the one block that is not Python."""
    (block,) = [block for block in ALL if block.language != "python"]
    (points,) = tomllib.loads(block.text)["project"]["entry-points"].items()
    assert points == (ENTRY_POINTS, {"sentiment": "acme_models.sentiment:Sentiment"})


def test_one_method_is_enough(model_of):
    with serve(model_of("Shout")) as client:
        assert client.infer("Shout", "hello").outputs["text"] == ["HELLO"]


def test_stacked_rows_of_unequal_length(model_of):
    with serve(model_of("Mean")) as client:
        handles = [
            client.submit("Mean", {"x": np.arange(count, dtype=np.float32)[None]})
            for count in (1, 3, 5)
        ]
        means = [float(client.result(handle).outputs["mean"][0]) for handle in handles]
    assert means == [0, 1, 2]


def test_a_signature_bounds_what_comes_in(model_of):
    with serve(model_of("Score")) as client:
        assert client.infer("Score", {"x": [[0.25, 1], [0, 0.5]]}).outputs["score"].tolist() == [
            1,
            0.5,
        ]
        with pytest.raises(CallerError, match="bad_inputs"):
            client.infer("Score", {"x": [[0, 2]]})


def test_an_error_of_its_own_reaches_the_caller_with_its_text_alone(model_of):
    with serve(model_of("Index")) as client:
        assert client.infer("Index", "hello").outputs["place"].tolist() == [7]
        with pytest.raises(ModelError, match="the index is being rebuilt"):
            client.infer("Index", "none")
