"""Pictures of 28 × 28 for a network of somebody who says nothing of lengths or costs."""

from statistics import median

import numpy as np

from .callers import in_turns
from .own_fleet import own_fleet
from .promise import at_least, equals

_CALLERS = 256
_ROWS_MAX = 64
_CODE = """\
import torch
from batchfleet import Model


class Digits(Model):
    stack = True
    limits = {"max_batch_size": 64}
    signature = {"inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 28, 28]}]}

    def load(self, context):
        torch.manual_seed(0)
        torch.set_num_threads(context.threads)
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(), torch.nn.Linear(512, 10),
        )

    def preprocess(self, row):
        return {"pixels": (row["pixels"] - 0.5) / 0.5}

    def predict(self, rows, context):
        with torch.inference_mode():
            pictures = torch.from_numpy(rows["pixels"])[:, None]
            return [{"digit": row} for row in self.network(pictures).softmax(1).numpy()]
"""


def pictures(*, quick):
    """256 callers of one picture each."""
    rng = np.random.default_rng(3)
    count = 2048 if quick else 16_384
    inputs = [{"pixels": rng.random((1, 28, 28), np.float32)} for _ in range(256)]
    with own_fleet(allow_code="own", threads=1) as fleet:
        fleet.deploy_code(_CODE, "digits")
        fleet.wait_until_served("digits")
        in_turns(fleet, "digits", inputs * 8, _CALLERS)  # the worker learns its batches
        run = in_turns(fleet, "digits", inputs * (count // len(inputs)), _CALLERS)
    return [
        equals(
            f"pictures 28 × 28, {_CALLERS} callers, {run.per_s:.0f}/s: rows of the median batch",
            int(median(run.batches)),
            _ROWS_MAX,
        ),
        at_least("… mean batch ÷ max_batch_size", run.mean_batch / _ROWS_MAX, 0.9),
    ]
