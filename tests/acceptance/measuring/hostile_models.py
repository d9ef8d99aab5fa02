"""Models that harm what is around them, each as its author might write it without ill will.

Every source holds one class, `Hostile`; a row is `{"x": …}` or `{"text": …}`.
"""

from dataclasses import dataclass, field

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Provocation:
    """Requests that are sent together, and the values or errors that answer them in order."""

    inputs: tuple[bytes, ...]
    answers: tuple[object, ...]
    parameters: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileModel:
    """What is published, what is asked of it, and whether it ends its process.

    Attributes:
        name: the fault's id, and what the author did.
        source: its file.
        provocation: what one provocation sends.
        ends_process: whether an answer costs the device process.
        options: of the model's deployment.
    """

    name: str
    source: str
    provocation: Provocation
    ends_process: bool = False
    limits: dict = field(default_factory=dict)


def _asks(*inputs, answers, parameters=""):
    return Provocation(
        inputs=tuple(map(orjson.dumps, inputs)), answers=tuple(answers), parameters=parameters
    )


def _tensor(row):
    """Inputs of one row."""
    return [{"name": "x", "shape": [1, len(row)], "data": row}]


def _raising(name, raised, error, stage="predict", before=""):
    body = "return row" if stage == "predict" else f"raise {raised}"
    run = f"raise {raised}" if stage == "predict" else "return [{'y': 1.0} for row in rows]"
    source = f"""\
import asyncio
import batchfleet
{before}

class Hostile(batchfleet.Model):
    def preprocess(self, row):
        label = row.get("text")
        {body if stage == "preprocess" else "return 1"}

    def predict(self, rows, context):
        {run}
"""
    return HostileModel(
        name=name, source=source, provocation=_asks({"text": ["a"]}, answers=[error])
    )


_MIXED = """\
import batchfleet


class Hostile(batchfleet.Model):
    stack = True

    def predict(self, rows, context):
        return [{"y": float(row.sum())} for row in rows["x"]]
"""
_EMPTY = """\
import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        return [{"y": float(row["x"].sum())} for row in rows]
"""
_FORKING = """\
import multiprocessing
import os
import time

import batchfleet


class Hostile(batchfleet.Model):
    def load(self, context):
        fork = multiprocessing.get_context("fork")
        fork.Process(target=time.sleep, args=(600,), daemon=True).start()

    def predict(self, rows, context):
        if any(row["text"] == "leave" for row in rows):
            os._exit(1)
        return [{"y": 1.0} for row in rows]
"""
_CRASHING = """\
import ctypes
import subprocess

import batchfleet


class Hostile(batchfleet.Model):
    def load(self, context):
        subprocess.Popen(["sleep", "611"])

    def predict(self, rows, context):
        if any(row["text"] == "leave" for row in rows):
            ctypes.string_at(0)
        return [{"y": 1.0} for row in rows]
"""
_PRINTING = """\
import subprocess

import batchfleet

print("Hello from the model")


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        print("x" * 79 + "\\n", end="", flush=True)
        for _ in range(1000):
            print("y" * 79)
        subprocess.run(["echo", "and from its child"], check=True)
        return [{"y": 1.0} for row in rows]
"""
_ASKING = """\
import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        input("name? ")
        return [{"y": 1.0} for row in rows]
"""
_HALVING = """\
import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        for row in rows:
            row["x"] /= 2
        if len(rows) > 2:
            raise MemoryError("more than two rows")
        return [{"y": float(row["x"].sum())} for row in rows]
"""
_POPPING = """\
import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        outputs = []
        while rows:
            outputs.append({"y": float(rows.pop(0)["x"].sum())})
        return outputs
"""
_TERMINATING = """\
import subprocess

import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        helper = subprocess.Popen(["sleep", "30"])
        helper.terminate()
        helper.wait(5)
        return [{"y": 1.0} for row in rows]
"""
_SPAWNING = """\
import multiprocessing

import batchfleet


def double(x):
    return 2 * x


class Hostile(batchfleet.Model):
    def load(self, context):
        self.pool = multiprocessing.get_context("spawn").Pool(1)

    def predict(self, rows, context):
        return [{"y": self.pool.apply_async(double, (0.5,)).get(20)} for row in rows]
"""
_WANDERING = """\
import os

import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        os.chdir("/")
        os.environ.clear()
        return [{"y": 1.0} for row in rows]
"""
_SILENCING = """\
import logging
import logging.config
import sys

import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
        logging.disable(logging.CRITICAL)
        sys.stderr = sys.stdout = None
        raise RuntimeError("nobody shall know")
"""
_SIGNALLING = """\
import signal

import batchfleet


class Hostile(batchfleet.Model):
    def predict(self, rows, context):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return [{"y": 1.0} for row in rows]
"""
_REUSING = """\
import numpy as np

import batchfleet


class Hostile(batchfleet.Model):
    def load(self, context):
        self.buffer = np.zeros((64, 1000), np.float32)

    def predict(self, rows, context):
        for at, row in enumerate(rows):
            self.buffer[at] = row["x"].sum()
        return [{"y": self.buffer[at]} for at in range(len(rows))]

    def postprocess(self, row):
        return {"y": row["y"][:1]}
"""
_HUGE = """\
import batchfleet


class Hostile(batchfleet.Model):
    def preprocess(self, row):
        return 10**400

    def predict(self, rows, context):
        return [{"y": 1.0} for row in rows]
"""
_MUTE = """
class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")
"""
_PANIC = """
class PanicException(BaseException):
    pass
"""
_LEAVES = [
    HostileModel(
        name="M9 a helper forked in load, then os._exit",
        source=_FORKING,
        provocation=_asks({"text": ["leave"]}, answers=["poison"]),
        ends_process=True,
    ),
    HostileModel(
        name="M14 a child started in load, then a segmentation fault",
        source=_CRASHING,
        provocation=_asks({"text": ["leave"]}, answers=["poison"]),
        ends_process=True,
    ),
]
_ROWS = [_tensor([float(at + 1)]) for at in range(8)]

MODELS = (
    HostileModel(
        name="M1 ints and fractions in one batch",
        source=_MIXED,
        provocation=_asks(_tensor([1, 2]), _tensor([0.5, 0.7, 0.9]), answers=[3.0, 2.1]),
    ),
    _raising("M2 a panic", 'PanicException("rust")', "model_error", before=_PANIC),
    _raising("M2 CancelledError", "asyncio.CancelledError()", "model_error"),
    _raising("M2 GeneratorExit in preprocess", "GeneratorExit()", "model_error", "preprocess"),
    _raising("M2 a group of them", 'BaseExceptionGroup("g", [GeneratorExit()])', "model_error"),
    HostileModel(
        name="M8 rows of nothing",
        source=_EMPTY,
        provocation=_asks(
            [{"name": "x", "datatype": "FP32", "shape": [2, 0], "data": []}], answers=[0.0]
        ),
    ),
    *_LEAVES,
    HostileModel(
        name="M10 prints, and so does a child",
        source=_PRINTING,
        provocation=_asks({"text": ["a"]}, answers=[1.0]),
    ),
    HostileModel(
        name="M10 asks at standard input",
        source=_ASKING,
        provocation=_asks({"text": ["a"]}, answers=["model_error"]),
    ),
    HostileModel(
        name="M11 halves its rows in place, then raises",
        source=_HALVING,
        provocation=_asks(*_ROWS, answers=[(at + 1) / 2 for at in range(8)]),
    ),
    HostileModel(
        name="M12 empties the list of rows",
        source=_POPPING,
        provocation=_asks(*_ROWS, answers=[at + 1.0 for at in range(8)]),
    ),
    HostileModel(
        name="M13 terminates a child",
        source=_TERMINATING,
        provocation=_asks({"text": ["a"]}, answers=[1.0]),
    ),
    HostileModel(
        name="M15 a pool of spawned processes",
        source=_SPAWNING,
        provocation=_asks({"text": ["a"]}, answers=[1.0]),
    ),
    HostileModel(
        name="M16 changes directory and environment",
        source=_WANDERING,
        provocation=_asks({"text": ["a"]}, answers=[1.0]),
    ),
    HostileModel(
        name="M17 silences all logs",
        source=_SILENCING,
        provocation=_asks({"text": ["a"]}, answers=["model_error"]),
    ),
    HostileModel(
        name="M18 sets a signal handler",
        source=_SIGNALLING,
        provocation=_asks({"text": ["a"]}, answers=["model_error"]),
    ),
    HostileModel(
        name="M19 returns one buffer again and again",
        source=_REUSING,
        provocation=_asks(*_ROWS, answers=[at + 1.0 for at in range(8)]),
    ),
    _raising(
        "B3 a lone surrogate in a ValueError",
        'ValueError("there is no label \\ud800")',
        "bad_inputs",
        "preprocess",
    ),
    _raising("B3 an exception without words", "Mute()", "model_error", before=_MUTE),
    HostileModel(
        name="B3 a length of 10**400",
        source=_HUGE,
        provocation=_asks({"text": ["a"]}, answers=["bad_output"]),
    ),
)
