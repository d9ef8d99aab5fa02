"""The class that a user writes to serve a model. The built-in runtimes are written the same way.

    class Shout(batchfleet.Model):
        def predict(self, rows, context):
            return [{"text": row["text"].upper()} for row in rows]

All methods run in the device process: `load` and `predict` on the thread that owns the device,
`preprocess` and `postprocess` on other threads, each for one row at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import structlog

from ..wire.deployment import Limits
from ..wire.signature import Signature


class Row(dict[str, Any]):
    """One input row: name → `str`, `bytes` or a numpy array without the row axis.

    Attributes:
        parameters: the `parameters` of the request, decoded separately for each row.
        truncate: the truncate policy of the request, `end` or `refuse`.
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
    """A result of `preprocess` with an explicit length.

    Attributes:
        value: passed to `predict` as this row.
        length: exact length in tokens, used for batching.
        truncated_tokens: tokens cut off; reported to the caller in `usage` and `warnings`.
    """

    value: Any
    length: int
    truncated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """The argument of `load`.

    Attributes:
        model, version: names of the version being loaded.
        device: `cpu` or `cuda:N`.
        threads: how many threads the device thread may use for one operation.
        seed: for random numbers of the model.
        parameters: `parameters` of the manifest.
        signature, limits: as deployed.
        folder: folder of the version's files, checked against their SHA-256 digests.
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
        """All except the logger, which belongs to this process."""
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
    """The second argument of `predict`.

    Attributes:
        lengths: exact length of each row.
        parameters: the `parameters` of the requests; the same for all rows of a batch.
        device: `cpu` or `cuda:N`.
        batch: number of this batch in its device process.
    """

    lengths: Sequence[int]
    parameters: Mapping[str, Any]
    device: str
    batch: int


class Model:
    """Base class of models. Only `predict` is required.

    With `stack = True`, `predict` gets one dict instead of a list of rows. It contains each array
    of the prepared rows, padded on `pad_side` with `pad_value` (a number that their datatypes can
    represent) and stacked along a new first axis, and `mask` (bool, rows × longest row), which is
    true for real values.

    `batchfleet models publish FILE.py` writes `signature`, `limits` and `bytes_per_token` into the
    manifest. The file is parsed, not imported: use literals only. They are not used later;
    `LoadContext` has the values in use. Without them, a model accepts any inputs, has no length
    rule, and gets the default limits.
    """

    signature: ClassVar[Mapping[str, Any]] = {}
    limits: ClassVar[Mapping[str, Any]] = {}
    bytes_per_token: ClassVar[float] = 0
    stack: ClassVar[bool] = False
    pad_side: str = "right"
    pad_value: float = 0

    def load(self, context: LoadContext) -> None:
        """Load weights. Called once, first. Raise an exception to refuse the version."""

    def preprocess(self, row: Row) -> Any:
        """Turn one row into arrays.

        Return a mapping name → array, one array, `Prepared`, or only an `int`: the length of the
        row, which is then passed to `predict` unchanged. Without `Prepared` or `int`, the length is
        the size of the first axis of the first array. Raise `ValueError` to refuse the row as
        `bad_inputs`, or `RequestError.of(kind, message)` to choose the error.

        You may modify the row. This may run twice for one row: a batch that failed runs again in
        parts, and its rows are preprocessed again.
        """
        return row

    def predict(self, rows: Any, context: PredictContext) -> Sequence[Any]:
        """Run one batch: return one output per prepared row, in the same order.

        You may modify the list and the rows, and return the same buffer each time.
        """
        raise TypeError(f"{type(self).__name__} does not define predict")

    def postprocess(self, row: Any) -> Any:
        """Turn one output of `predict` into a mapping name → array, `str` or number."""
        return row

    def example(self, length: int) -> Row | None:
        """A row of about `length` tokens for warm-up, or None if there is none."""
        return None
