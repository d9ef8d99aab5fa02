"""A stand-in for an accelerator: busy for a time that the batch's size decides, off the CPU."""

from collections.abc import Sequence
from typing import Any

from ..model import LoadContext, PredictContext, Row
from .echo import Echo
from .faults import sleep_ms


class DeviceStub(Echo):
    """Sleeps `base_ms + per_token_ms × longest × rows`, then answers like `Echo`.

    Parameters of the manifest beside those of `Echo`: `base_ms` (20) and `per_token_ms` (0.02).
    """

    def load(self, context: LoadContext) -> None:
        """Read the parameters."""
        super().load(context)
        self._base_ms = float(context.parameters.get("base_ms", 20.0))
        self._per_token_ms = float(context.parameters.get("per_token_ms", 0.02))

    def predict(self, rows: Sequence[Row], context: PredictContext) -> list[dict[str, Any]]:
        """Occupy the device for as long as this batch takes, then answer."""
        sleep_ms(self.cost_ms(context.lengths))
        return super().predict(rows, context)

    def cost_ms(self, lengths: Sequence[int]) -> float:
        """How long a batch of rows of these lengths occupies the device."""
        return self._base_ms + self._per_token_ms * max(lengths) * len(lengths)
