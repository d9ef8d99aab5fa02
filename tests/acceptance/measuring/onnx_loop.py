"""The loop that somebody would write with onnxruntime: texts in, vectors out, in order of arrival.

    python -m tests.acceptance.measuring.onnx_loop PACKAGES FOLDER

`PACKAGES` is a folder with onnxruntime and onnx in it, `FOLDER` the files of MiniLM. One thread.
Answers each line of JSON `{"texts": […], "batch": 8, "vectors": false}` with texts a second, the
median of what a batch took, and the vectors if asked for.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from batchfleet.models.runtimes.bert import Arithmetic, BertConfig, BertEncoder

_TOKENS_MAX = 256


class _IntegerMask(BertEncoder):
    """Takes a mask of whole numbers: the format has no sum of booleans."""

    def _attention(self, hidden, layer, shape, mask):
        return super()._attention(hidden, layer, shape, mask.bool())


class _Encoder(torch.nn.Module):
    """What is exported: the product's forward pass, with a mask always."""

    def __init__(self, folder):
        super().__init__()
        config = BertConfig.from_file(folder / "config.json")
        tensors = load_file(folder / "model.safetensors")
        self._encode = _IntegerMask(config, tensors, Arithmetic())

    def forward(self, ids, mask):
        return self._encode(ids, mask)


def _export(folder, path):
    ids = torch.randint(1000, 2000, (3, 7))
    mask = torch.ones(3, 7, dtype=torch.int64)
    mask[0, 5:] = 0
    axes = {0: "rows", 1: "longest"}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of the exporter, which is an old one
        torch.onnx.export(
            _Encoder(folder),
            (ids, mask),
            str(path),
            input_names=["ids", "mask"],
            output_names=["hidden"],
            dynamic_axes={"ids": axes, "mask": axes, "hidden": axes},
            opset_version=17,
            dynamo=False,
        )


class Loop:
    """Owns the session and the tokenizer."""

    def __init__(self, folder):
        import onnxruntime  # noqa: PLC0415  found in a folder that `main` is told

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_TOKENS_MAX)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        with tempfile.TemporaryDirectory(prefix="batchfleet-onnx-") as name:
            path = Path(name) / "model.onnx"
            _export(folder, path)
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )

    def embed(self, texts):
        """One batch."""
        found = self._tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in found], np.int64)
        mask = np.array([one.attention_mask for one in found], np.int64)
        (hidden,) = self._session.run(None, {"ids": ids, "mask": mask})
        weights = mask[..., None].astype(np.float32)
        vectors = (hidden * weights).sum(1) / weights.sum(1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def run(self, texts, batch):
        """Vectors of all texts, and the seconds of each batch."""
        vectors, took_s = [], []
        for at in range(0, len(texts), batch):
            began = perf_counter()
            vectors.append(self.embed(texts[at : at + batch]))
            took_s.append(perf_counter() - began)
        return np.concatenate(vectors), took_s


def _say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(packages, folder):
    sys.path.append(packages)
    torch.set_num_threads(1)
    loop = Loop(Path(folder))
    _say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        loop.run(asked["texts"][:8], asked["batch"])
        vectors, took_s = loop.run(asked["texts"], asked["batch"])
        _say(
            {
                "per_s": len(vectors) / sum(took_s),
                "p50_ms": float(np.median(took_s)) * 1000,
                "vectors": vectors.tolist() if asked["vectors"] else None,
            }
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
