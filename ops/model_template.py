"""The folder that `batchfleet models init` writes: a model that works, its test, and an input."""

from collections.abc import Mapping
from pathlib import Path

from ..wire.errors import BatchfleetError
from ..wire.names import require_name


class FolderExistsError(BatchfleetError):
    """There is something where a new folder was to be written."""


def write_model_folder(folder: Path, name: str) -> list[Path]:
    """Write the files of a new model; returns their paths.

    Raises:
        CallerError: `bad_request` where `name` is not a name.
        FolderExistsError: the folder is there already and holds something.
    """
    require_name("model", name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderExistsError(f"{folder} already exists; choose another name or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for file_name, text in model_files(name).items():
        path = folder / file_name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def model_files(name: str) -> Mapping[str, str]:
    """File name → text."""
    words = {"NAME": name, "CLASS": class_name_of(name)}
    return {file: _filled(text, words) for file, text in _FILES.items()}


def class_name_of(name: str) -> str:
    """A class's name for a model's name: `my-model.2` → `MyModel2`."""
    parts = "".join(c if c.isalnum() else " " for c in name).split()
    joined = "".join(part[0].upper() + part[1:] for part in parts)
    return joined if joined[0].isalpha() else f"Model{joined}"


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


_MODEL = '''\
"""An example model; README.md shows how to try, test and serve it."""

import batchfleet


class @CLASS@(batchfleet.Model):
    # Read without running this file, so use literals only. All of it is optional: without a
    # signature, a model accepts any inputs.
    signature = {
        "inputs": [{"name": "text", "datatype": "BYTES"}],
        "outputs": [
            {"name": "loud", "datatype": "BYTES"},
            {"name": "words", "datatype": "INT64"},
        ],
    }
    limits = {"max_batch_size": 16, "max_length": 256, "buckets": [16, 64, 256]}
    bytes_per_token = 5.0

    def load(self, context):
        """Runs once, first. Load weights here: context.path("weights.safetensors")."""
        self.mark = context.parameters.get("mark", "!")

    def preprocess(self, row):
        """Turn one row into what predict receives, with its exact length for batching."""
        words = row["text"].split()
        if not words:
            raise ValueError("the text has no words")  # the caller gets the error bad_inputs
        return batchfleet.Prepared(words, length=len(words))

    def predict(self, rows, context):
        """Run one batch: return one output per prepared row, in the same order."""
        return [{"loud": " ".join(words).upper(), "words": len(words)} for words in rows]

    def postprocess(self, row):
        """Turn one output of predict into what the caller receives."""
        return {"loud": row["loud"] + self.mark, "words": row["words"]}
'''

_TEST = '''\
"""Tests of @CLASS@. The router and worker of a fleet run in this process."""

import json
from pathlib import Path

import pytest
from batchfleet import CallerError
from batchfleet.testing import serve
from model import @CLASS@

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def client():
    with serve(@CLASS@) as client:
        yield client


def test_it_answers_every_row_in_order(client):
    texts = json.loads((HERE / "x.json").read_text())["text"]
    outputs = client.infer("@CLASS@", texts).outputs
    assert outputs["loud"] == ["HELLO WORLD!", "GOOD MORNING TO YOU!"]
    assert outputs["words"].tolist() == [2, 4]


def test_a_text_without_words_is_refused(client):
    with pytest.raises(CallerError, match="no words"):
        client.infer("@CLASS@", "   ")
'''

_README = """\
# @NAME@

    batchfleet models try model.py --input x.json            # run it once, without a fleet
    batchfleet models try model.py --text hi --stage preprocess
    pytest                                                    # run its test
    batchfleet dev model.py --name @NAME@                     # serve it, reload on save

    batchfleet models publish model.py --name @NAME@ --version 1
    batchfleet up                                             # serve the models in the store
    batchfleet infer @NAME@ "hello world"

`breakpoint()` works in `try` and in `dev`. A version never changes: publish the next one as
`--version 2`, then `batchfleet deploy @NAME@`.
"""

_FILES = {
    "model.py": _MODEL,
    "test_model.py": _TEST,
    "x.json": '{"text": ["hello world", "good morning to you"]}\n',
    "README.md": _README,
}
