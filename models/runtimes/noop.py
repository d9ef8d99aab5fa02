"""A model that does nothing: what is left of a request's time is the fleet's own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model import LoadContext, Model, PredictContext, Row


class Noop(Model):
    """Answers every row with the same small `output` (FP32 [2]); admits any inputs."""

    def load(self, context: LoadContext) -> None:  # noqa: ARG002 (Model's signature)
        """Make the one output that all rows get."""
        self._output = {"output": np.array([0.25, 0.75], np.float32)}

    def preprocess(self, row: Row) -> int:  # noqa: ARG002 (as above)
        """Every row has length 1."""
        return 1

    def predict(
        self,
        rows: Sequence[Row],
        context: PredictContext,  # noqa: ARG002 (as above)
    ) -> list[dict[str, Any]]:
        """The same output for all rows."""
        return [self._output] * len(rows)

    def example(self, length: int) -> Row:  # noqa: ARG002 (as above)
        """Any row will do."""
        return Row({"text": "x"})
