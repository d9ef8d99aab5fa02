"""A device process with models made for tests; run as a program in place of the real one.

Everything but the store is the real thing. The model is chosen by the name in `Load`.
"""
# ruff: noqa: ARG002  the signatures are those of Model

import sys
import threading
from pathlib import Path

import numpy as np

from batchfleet.consumer.device.opened import VersionFiles
from batchfleet.consumer.device.program import main
from batchfleet.models.model import Model, Prepared, Row
from batchfleet.wire.errors import ErrorKind, RequestError

LINEAGE = "0123456789abcdef"


def wait_for(fifo):
    """Block until the test opens the pipe for writing and closes it."""
    Path(fifo).read_bytes()


class Plain(Model):
    """Gives every row back."""

    def predict(self, rows, context):
        return rows

    def example(self, length):
        return Row({"text": "x" * length})


class Faulty(Model):
    """Does to a batch what the text of one of its rows says."""

    def load(self, context):
        self.batches = 0

    def predict(self, rows, context):
        self.batches += 1
        texts = [row["text"] for row in rows]
        if "raise" in texts:
            raise KeyError("a secret of the model")
        if "memory" in texts:
            raise MemoryError
        if "refuse" in texts:
            raise RequestError.of(ErrorKind.SESSION_LOST, "chosen by the model")
        if "exit" in texts:
            sys.exit(3)
        if "nothing" in texts:
            return None
        if "generator" in texts:
            return (row for row in rows)
        if "wrong_count" in texts:
            return [{"score": 1.0}] * (len(rows) + 1)
        return [self.output(text, context) for text in texts]

    def output(self, text, context):
        score = {"nan": np.nan, "infinity": np.inf}.get(text, len(text))
        shape = (2,) if text == "wide" else (1,)
        if text == "object":
            return {"score": object()}
        if text == "surrogate":
            return {"score": "\ud800"}
        if text == "other_names":
            return {"points": np.float32(1)}
        return {"score": np.full(shape, score, np.float32)}


class Picky(Model):
    """Does in `preprocess` what the text of a row says; its length is that of the text."""

    ERRORS = {  # noqa: RUF012  a table
        "value": ValueError("the model does not like this"),
        "key": KeyError("a secret of the model"),
        "memory": MemoryError(),
    }
    RESULTS = {  # noqa: RUF012  a table
        "nothing": None,
        "zero": 0,
        "true": Prepared("x", length=True),
        "empty": {"ids": np.zeros(0, np.int64)},
        "array": np.arange(4),
        "cut": Prepared("x", 2, 7),
    }

    def preprocess(self, row):
        text = row["text"]
        if text in self.ERRORS:
            raise self.ERRORS[text]
        if "fifo" in row.parameters:
            wait_for(row.parameters["fifo"])
        return self.RESULTS.get(text, len(text))

    def predict(self, rows, context):
        return [np.int64(length) for length in context.lengths]


class Stacked(Model):
    """Sums what is real of each row, over the padded batch."""

    stack = True
    pad_value = -1

    def preprocess(self, row):
        return {"ids": row["ids"]}

    def predict(self, rows, context):
        return (rows["ids"] * rows["mask"]).sum(axis=1)

    def example(self, length):
        return Row({"ids": np.ones(length, np.int64)})


class Polished(Model):
    """Has a `postprocess` of its own, which fails on one text."""

    def predict(self, rows, context):
        return [row["text"] for row in rows]

    def postprocess(self, row):
        if row == "raise":
            raise KeyError("a secret of the model")
        return {"upper": row.upper(), "size": len(row)}


class Reusing(Model):
    """Gives back each row from one buffer, of as many numbers a row as the parameters say."""

    def load(self, context):
        self.buffer = np.zeros(1 << 20)

    def predict(self, rows, context):
        size = context.parameters.get("size", 1)
        buffer = self.buffer[: len(rows) * size].reshape(len(rows), size)
        buffer[...] = np.stack([row["x"] for row in rows])[:, np.newaxis]
        return list(buffer)


class Polishing(Reusing):
    """Waits with the first row that it postprocesses until the test lets it go."""

    def postprocess(self, row):
        if row[0] == 0:
            wait_for(self.folder / "fifo")
        return row

    def load(self, context):
        super().load(context)
        self.folder = context.folder


class Smearing(Model):
    """Lets other threads run while its one buffer is filled, before and behind `predict`."""

    def load(self, context):
        self.before = np.zeros(1)
        self.behind = np.zeros(1)

    def preprocess(self, row):
        return Prepared({"x": self.fill(self.before, row["x"])}, 1)

    def predict(self, rows, context):
        return [row["x"] for row in rows]

    def postprocess(self, row):
        return {"output": self.fill(self.behind, row)}

    def fill(self, buffer, value):
        buffer[...] = value
        threading.Event().wait(0.001)  # slow, as work of this kind is
        return buffer


class Waiting(Model):
    """Predicts once the pipe named by a row has been opened by the test."""

    def predict(self, rows, context):
        for row in rows:
            wait_for(row["text"])
        return [np.int64(1) for _ in rows]


class Endless(Model):
    """Says on standard output that it predicts, and never comes back."""

    def predict(self, rows, context):
        print("predicting", flush=True)  # noqa: T201
        # Without a time-out on purpose: to end this is the duty of the connection.
        threading.Event().wait()


class Gradual(Plain):
    """Holds 32 MB, and waits in its first batch for the pipe `gate` in its folder."""

    def load(self, context):
        self.weights = np.ones(32 << 20, np.uint8)
        self.gate = context.folder / "gate"
        self.has_waited = False

    def predict(self, rows, context):
        if not self.has_waited:
            self.has_waited = True
            wait_for(self.gate)
        return rows


class Growing(Model):
    """Keeps 32 MB a batch."""

    def load(self, context):
        self.kept = []

    def predict(self, rows, context):
        self.kept.append(np.ones(32 << 20, np.uint8))
        return rows


class Unloadable(Plain):
    def load(self, context):
        raise OSError("weights are unreadable")


class ColdFeet(Plain):
    """Loads, and fails on its own example."""

    def predict(self, rows, context):
        raise KeyError("not warm")


MODELS = {
    kind.__name__.lower(): kind
    for kind in (
        ColdFeet, Endless, Faulty, Gradual, Growing, Picky, Plain, Polished, Polishing, Reusing,
        Smearing, Stacked, Unloadable, Waiting,
    )
}  # fmt: skip


def open_test_model(load, _):
    return VersionFiles(
        model_class=MODELS[load.model], folder=Path(load.store), parameters={}, lineage=LINEAGE
    )


if __name__ == "__main__":
    main(lambda _: open_test_model)
