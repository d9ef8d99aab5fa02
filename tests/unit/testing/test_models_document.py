"""What `docs/models.md` shows works as it says."""

import re
import runpy
import textwrap
from pathlib import Path

import numpy as np
import pytest

from batchfleet.models.hooks import HOOKS
from batchfleet.models.manifest import read_signature
from batchfleet.testing import serve

TEXT = (Path(__file__).parents[3] / "docs/models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def shown(tmp_path):
    """What a block of the document defines."""

    def shown(start):
        (block,) = [block for block in BLOCKS if start in block]
        path = tmp_path / "block.py"
        path.write_text(f"import batchfleet\n{textwrap.dedent(block)}")
        return runpy.run_path(str(path))

    return shown


def test_the_first_model_answers(shown):
    with serve(shown("class Shout")["Shout"]) as client:
        assert client.infer("Shout", "hello").outputs["text"] == ["HELLO"]


def test_the_stacked_model_ignores_padding(shown):
    rows = {"x": np.array([[1.0, 3.0]])}
    with serve(shown("class Mean")["Mean"]) as client:
        assert client.infer("Mean", rows).outputs["mean"].tolist() == [2.0]


def test_the_signature_is_one_and_every_key_of_a_tensor_is_told(shown):
    signature = read_signature(shown("class Score")["Score"].signature)
    assert (signature.inputs[0].shape, signature.inputs[0].highest) == ((-1, 2), 1)
    assert not signature.outputs[0].finite
    for key in ("name", "datatype", "shape", "range", "finite"):
        assert f"\n| `{key}` |" in TEXT
    with pytest.raises(ValueError, match="unknown key"):
        read_signature({"inputs": [{"name": "x", "datatype": "FP32", "colour": 1}]})


@pytest.mark.parametrize("name", HOOKS)
def test_every_method_is_told_with_its_arguments(name):
    assert f"| `{name}({', '.join(('self', *HOOKS[name]))})` |" in TEXT
