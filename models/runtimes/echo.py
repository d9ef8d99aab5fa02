"""A model whose answers can be checked by anyone, and which fails in any way it is told to."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..lengths import tokens_to_cut
from ..model import LoadContext, Model, PredictContext, Prepared, Row
from .faults import Fault, parse_fault


def echo_digest(row: Mapping[str, Any], version: str) -> str:
    """sha256 in hex over the version's name and a row's columns, in the order of their names.

    A column counts with its name, kind, shape and little-endian bytes, so equal digests mean equal
    rows. For a text row that is: version, newline, then `text`, newline, `str`, newline, number of
    UTF-8 bytes, newline, those bytes.
    """
    digest = hashlib.sha256(f"{version}\n".encode())
    for name in sorted(row):
        kind, raw = _canonical(row[name])
        digest.update(f"{name}\n{kind}\n{len(raw)}\n".encode())
        digest.update(raw)
    return digest.hexdigest()


def _canonical(value: Any) -> tuple[str, bytes]:
    if isinstance(value, str):
        return "str", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return "bytes", value
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return f"{array.dtype.str}{list(array.shape)}", array.tobytes()


class Echo(Model):
    """Answers each row with `digest`, `length` and `score`; admits any inputs.

    `digest` is `echo_digest` of the row; `length` (INT64) the row's length; `score` (FP32, 0 to 1)
    the first 24 bits of the digest as a fraction.

    Parameters of the manifest:
        characters_per_token: a text row has `characters // this + 1` tokens; 0 (the default): 1.
        faults: true lets the switches below work. They let any caller strike what all models of a
            device process share, so nothing that is imported has them.
        mirror: whether each row's own columns come back as well; false by default.

    A row whose `text` is `!switch[:number][@stage]`, alone or followed by a blank and anything,
    carries a fault; so do all rows of a request with the parameter `fault` (the same without `!`).
    The stage is `preprocess`, `predict` (the default) or `postprocess`. A text that spells no fault
    is echoed like any other.

        sleep:200        sleeps so many milliseconds (100), off the CPU
        raise            raises an error
        hang             never returns
        segv             reads address 0: the process dies
        grow:64          keeps so many more megabytes
        hold_gil:9000    holds the interpreter lock for so many milliseconds (1000)
        memory_error     raises MemoryError
        wrong_count      preprocess: nothing; predict: one output too few; postprocess: no columns
        nan              preprocess: a length of NaN; else `score` is NaN
    """

    def load(self, context: LoadContext) -> None:
        """Read the parameters."""
        self._version = context.version
        self._longest = context.limits.max_length
        self._characters_per_token = int(context.parameters.get("characters_per_token", 0))
        self._faults = context.parameters.get("faults") is True
        self._mirrors = bool(context.parameters.get("mirror", False))
        self._kept: list[bytes] = []

    def preprocess(self, row: Row) -> Any:
        """The row's length, or a `Prepared` where there is more to say than that."""
        length = self._length_of(row)
        cut = tokens_to_cut(length, self._longest, row.truncate)
        fault = self._fault_of(row) if self._faults else None
        if fault is None and not cut:
            return length
        value = row if fault is None else _FaultyRow(row, fault)
        if fault is not None:
            fault.strike("preprocess", self._kept)
            if fault.spoils("wrong_count", "preprocess"):
                return None
            if fault.spoils("nan", "preprocess"):
                return Prepared(value, float("nan"))  # type: ignore[arg-type]  # on purpose
        return Prepared(value, length - cut, cut)

    def predict(self, rows: Sequence[Row], context: PredictContext) -> list[dict[str, Any]]:
        """One output a row, unless a row says otherwise."""
        outputs: list[dict[str, Any]] = []
        for row, length in zip(rows, context.lengths, strict=True):
            output = self._answer(row, length)
            if isinstance(row, _FaultyRow):
                row.fault.strike("predict", self._kept)
                if row.fault.spoils("wrong_count", "predict"):
                    continue
                output = _FaultyOutput(output, row.fault)
            outputs.append(output)
        return outputs

    def postprocess(self, row: dict[str, Any]) -> dict[str, Any]:
        """The output as it is, unless it comes of a row with a fault."""
        if not isinstance(row, _FaultyOutput):
            return row
        row.fault.strike("postprocess", self._kept)
        return {} if row.fault.spoils("wrong_count", "postprocess") else dict(row)

    def example(self, length: int) -> Row:
        """A text of exactly so many tokens, where tokens are counted."""
        return Row({"text": "x" * max(1, (length - 1) * self._characters_per_token)})

    def _answer(self, row: Row, length: int) -> dict[str, Any]:
        digest = echo_digest(row, self._version)
        return {
            **(row if self._mirrors else {}),
            "digest": digest,
            "length": length,
            "score": np.float32(int(digest[:6], 16) / 2**24),
        }

    def _length_of(self, row: Row) -> int:
        text = row.get("text")
        if not self._characters_per_token or not isinstance(text, str):
            return 1
        return len(text) // self._characters_per_token + 1

    def _fault_of(self, row: Row) -> Fault | None:
        wanted = row.parameters.get("fault")
        if wanted is not None:
            return parse_fault(str(wanted))
        text = row.get("text")
        if not isinstance(text, str) or not text.startswith("!"):
            return None
        try:
            return parse_fault(text[1:])
        except ValueError:
            return None  # any text may be echoed, and this one happens to start with a mark


class _FaultyRow(Row):
    """A row on its way to the fault's stage."""

    __slots__ = ("fault",)

    def __init__(self, row: Row, fault: Fault) -> None:
        super().__init__(row, row.parameters, row.truncate)
        self.fault = fault


class _FaultyOutput(dict[str, Any]):
    """The output of such a row."""

    __slots__ = ("fault",)

    def __init__(self, output: dict[str, Any], fault: Fault) -> None:
        super().__init__(output)
        self.fault = fault
        if fault.switch == "nan" and fault.stage != "preprocess":
            self["score"] = np.float32(np.nan)
