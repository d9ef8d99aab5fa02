"""The class that a user writes to serve a model. The built-in runtimes are written the same way.

    class Shout(batchfleet.Model):
        def predict(self, rows, context):
            return [{"text": row["text"].upper()} for row in rows]

All methods run in the device process: `load` and `predict` on the one thread that owns the device,
`preprocess` and `postprocess` on threads beside it, each for one row at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import structlog

from ..wire.deployment import Limits, Signature


class Row(dict[str, Any]):
    """One input row: name → `str`, `bytes` or a numpy array without the row axis.

    Attributes:
        parameters: what the caller sent as `parameters`: equal for all rows of a request, and
            decoded for each.
        truncate: the policy in force for this request, `end` or `refuse`.
    """

    __slots__ = ("parameters", "truncate")

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        truncate: str = "refuse",
    ) -> None:
        if values:
            super().__init__(values)
        self.parameters: Mapping[str, Any] = parameters or {}
        self.truncate = truncate


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `preprocess` may return when it wants to say more than the arrays alone.

    Attributes:
        value: handed to `predict` as this row.
        length: exact length in tokens; batches are cut by it.
        truncated_tokens: tokens cut off; reported to the caller in `usage` and `warnings`.
    """

    value: Any
    length: int
    truncated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What `load` is given.

    Attributes:
        model, version: names of the version being loaded.
        device: `cpu` or `cuda:N`.
        threads: how many threads the device thread may use for one operation.
        seed: for whatever chance the model needs.
        parameters: `parameters` of the manifest.
        signature, limits: as deployed.
        folder: the version's files, checked against their sha256.
        logger: structured logger, bound to model and version.
    """

    model: str
    version: str
    device: str
    threads: int
    seed: int
    parameters: Mapping[str, Any]
    signature: Signature
    limits: Limits
    folder: Path
    logger: Any = field(default_factory=structlog.get_logger, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """All but the logger, which is of this process; the other one takes its own."""
        names = [one.name for one in fields(self) if one.name != "logger"]
        return _load_context, ({name: getattr(self, name) for name in names},)

    def path(self, name: str) -> Path:
        """The path of one file of the version.

        Raises:
            FileNotFoundError: the version has no such file.
        """
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{self.model}/{self.version} has no file {name!r}")
        return path


def _load_context(said: dict[str, Any]) -> LoadContext:
    return LoadContext(**said)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictContext:
    """What `predict` is given beside its rows.

    Attributes:
        lengths: exact length of each row.
        parameters: the callers' `parameters`; equal for all rows of a batch, decoded for it.
        device: `cpu` or `cuda:N`.
        batch: number of this batch in the life of the device process.
    """

    lengths: Sequence[int]
    parameters: Mapping[str, Any]
    device: str
    batch: int


class Model:
    """A model that batchfleet can serve. Only `predict` must be written.

    With `stack = True`, `predict` gets one dict instead of a list of rows: each array of the
    prepared rows padded at the side that `pad_side` names with `pad_value` (a number that their
    datatypes can hold) and stacked along a new first axis, plus `mask` (bool, rows × longest), true
    where a value is real.

    `signature`, `limits` and `bytes_per_token` are what `batchfleet models publish FILE.py` writes
    into the manifest, as there. They are read from the file without running it, so write them out;
    nothing looks at them later, `LoadContext` has what is in force. Without them a model takes any
    inputs, has no length rule, and gets the default limits.
    """

    signature: ClassVar[Mapping[str, Any]] = {}
    limits: ClassVar[Mapping[str, Any]] = {}
    bytes_per_token: ClassVar[float] = 0
    stack: ClassVar[bool] = False
    pad_side: str = "right"
    pad_value: float = 0

    def load(self, context: LoadContext) -> None:
        """Load weights once, before anything else is called. Raise to refuse the version."""

    def preprocess(self, row: Row) -> Any:
        """Turn one row into arrays.

        Return a mapping name → array, one array, `Prepared`, or just an `int`: the row's length,
        with the row itself then handed to `predict`. Without `Prepared` or `int` the length is the
        first axis of the first array. Raise `ValueError` to refuse the row as `bad_inputs`, or
        `RequestError.of(kind, message)` to choose the error.

        The row and all in it are yours to change. This may run twice for one row: a batch that
        failed runs again in parts, whose rows are made anew from what their callers sent.
        """
        return row

    def predict(self, rows: Any, context: PredictContext) -> Sequence[Any]:
        """Run one batch: a list of prepared rows in, as many outputs out, in the same order.

        The list and the rows are yours to change. The outputs may be the same buffer each time.
        """
        raise TypeError(f"{type(self).__name__} does not define predict")

    def postprocess(self, row: Any) -> Any:
        """Turn one output of `predict` into a mapping name → array, `str` or number."""
        return row

    def example(self, length: int) -> Row | None:
        """A row of about `length` tokens, for warm-up; None where the model cannot make one."""
        return None
