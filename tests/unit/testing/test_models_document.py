"""What `docs/models.md` shows works as it says."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import batchfleet
from batchfleet.models.hooks import HOOKS
from batchfleet.models.manifest import read_signature
from batchfleet.testing import serve

TEXT = (Path(__file__).parents[3] / "docs/models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def shown(start):
    """What a block of the document defines."""
    (block,) = [block for block in BLOCKS if start in block]
    names = {"batchfleet": batchfleet}
    exec(textwrap.dedent(block), names)  # noqa: S102  the document is ours
    return names


def test_the_first_model_answers():
    with serve(shown("class Shout")["Shout"]) as client:
        assert client.infer("Shout", "hello").outputs["text"] == ["HELLO"]


def test_the_stacked_model_ignores_padding():
    rows = {"x": np.array([[1.0, 3.0]])}
    with serve(shown("class Mean")["Mean"]) as client:
        assert client.infer("Mean", rows).outputs["mean"].tolist() == [2.0]


def test_the_signature_is_one_and_every_key_of_a_tensor_is_told():
    signature = read_signature(shown("signature = {")["signature"])
    assert (signature.inputs[0].shape, signature.inputs[0].highest) == ((-1, 2), 1)
    assert not signature.outputs[0].finite
    for key in ("name", "datatype", "shape", "range", "finite"):
        assert f"\n| `{key}` |" in TEXT
    with pytest.raises(ValueError, match="unknown key"):
        read_signature({"inputs": [{"name": "x", "datatype": "FP32", "colour": 1}]})


@pytest.mark.parametrize("name", HOOKS)
def test_every_method_is_told_with_its_arguments(name):
    assert f"| `{name}({', '.join(('self', *HOOKS[name]))})` |" in TEXT
