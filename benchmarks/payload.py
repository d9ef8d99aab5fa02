"""The one payload that all contestants of the floor send: a row of 64 whole numbers."""

import numpy as np
from numpy.typing import NDArray

TENSOR = "input_ids"


def one_row() -> dict[str, NDArray[np.int64]]:
    """The inputs of one request, INT64 [1, 64]."""
    return {TENSOR: np.arange(64, dtype=np.int64)[np.newaxis]}
