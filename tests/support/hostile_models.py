"""Models that do what no author means to do: odd exceptions, lengths, outputs, and settings.

Run as a program in place of the real device process, as `device_models.py` is.

The text of a row says what happens to it: `STAGE:NAME` does it in that stage; any other text is a
good row, whose answer is its own text in upper case.
"""
# ruff: noqa: ARG002  the signatures are those of Model

import asyncio
import datetime as dt
import decimal
import logging
import logging.config
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from types import FunctionType

import numpy as np
import structlog

from batchfleet.consumer.device.opened import VersionFiles
from batchfleet.consumer.device.program import main
from batchfleet.models.model import Model, Prepared, Row
from batchfleet.wire.errors import BatchfleetError, ErrorKind, RequestError


class PanicException(BaseException):
    """Named and made as what a panic in Rust raises."""


class Unsayable(Exception):  # noqa: N818
    def __str__(self):
        raise PanicException("no words")

    __repr__ = __str__


class UnsayableRefusal(Unsayable, ValueError):  # noqa: N818
    pass


class UnsayableOfOurs(Unsayable, BatchfleetError):  # noqa: N818
    pass


class OddText(Exception):  # noqa: N818
    def __str__(self):
        return Text("odd \ud800")


class Text(str):
    __slots__ = ()

    def __getitem__(self, key):
        raise PanicException

    encode = __len__ = __format__ = __str__ = __getitem__


class OddClass(Exception):  # noqa: N818
    @property
    def __class__(self):
        raise PanicException

    __bool__ = __eq__ = __setattr__ = __hash__ = None


class Nameless(type):
    @property
    def __name__(cls):
        raise PanicException


class OddName(Exception, metaclass=Nameless):  # noqa: N818
    pass


class OddCause(Exception):  # noqa: N818
    @property
    def __cause__(self):
        raise PanicException

    __context__ = __traceback__ = __notes__ = __suppress_context__ = __cause__


class Spoiled(RequestError):  # noqa: N818
    @property
    def kind(self):
        raise KeyError("no kind")

    message = rows = retry_after_ms = kind

    def __init__(self):
        Exception.__init__(self, "spoiled")


def spoiled(**fields):
    error = RequestError.of(ErrorKind.MODEL_ERROR, "spoiled")
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def in_a_cycle():
    first, second = KeyError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def with_causes(count):
    error = None
    for at in range(count):
        cause, error = error, KeyError(at)
        error.__cause__ = cause
    return error


def odd_syntax_error():
    error = SyntaxError("\ud800")
    error.filename, error.lineno, error.offset, error.text = object(), "x", object(), object()
    return error


def from_an_odd_file():
    try:
        FunctionType(compile("raise KeyError", "\udcff\x1b.py", "exec"), {})()
    except KeyError as error:
        return error


# Name → what to raise, of every kind that is no ValueError.
ERRORS = {
    "panic": lambda: PanicException("a panic"),
    "cancelled": asyncio.CancelledError,
    "generator_exit": GeneratorExit,
    "group": lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
    "group_with_exit": lambda: BaseExceptionGroup("several", [SystemExit(3)]),
    "unsayable": Unsayable,
    "unsayable_of_ours": UnsayableOfOurs,
    "odd_text": OddText,
    "odd_class": OddClass,
    "odd_name": OddName,
    "odd_cause": OddCause,
    "spoiled": Spoiled,
    "no_kind": lambda: spoiled(kind=None),
    "no_text": lambda: spoiled(message=b"\xff"),
    "odd_rows": lambda: spoiled(rows=(10**400, -1, "a")),
    "odd_pause": lambda: spoiled(retry_after_ms=-1),
    "cycle": in_a_cycle,
    "many_causes": lambda: with_causes(3000),
    "odd_syntax": odd_syntax_error,
    "odd_file": from_an_odd_file,
    "os_error": lambda: OSError(2, "no such file", "\udcff"),
    "digits": lambda: KeyError(10**5000),
    "huge": lambda: RuntimeError("x" * 50_000_000),
    "controls": lambda: RuntimeError("\x00\x1b[2J\x9b\ud800\r\n"),
    "recursion": RecursionError,
}
REFUSALS = {
    "surrogate": lambda: ValueError("there is no label \ud800"),
    "unsayable_refusal": UnsayableRefusal,
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\udcff"),
    "huge_refusal": lambda: ValueError("x" * 50_000_000),
}


class OddNumber(int):
    def __int__(self):
        raise PanicException

    __lt__ = __le__ = __gt__ = __ge__ = __index__ = __str__ = __repr__ = __int__


LENGTHS = {
    "huge": 10**400,
    "unsayable": 10**5000,
    "over_32_bits": 2**31,
    "over_64_bits": 2**64,
    "numpy": np.uint64(2**63),
    "negative": -1,
    "nan": float("nan"),
    "infinite": float("inf"),
    "true": True,
    "numpy_true": np.True_,
    "text": "3",
    "none": None,
    "list": [3],
    "array": np.ones(3),
}


class OddArray:
    def __array__(self, *args, **more):
        raise PanicException("no array")


class OddMapping(dict):
    def keys(self):
        raise PanicException("no keys")

    items = values = __iter__ = __getitem__ = keys


class OddCopy:
    def __deepcopy__(self, known):
        raise PanicException("no copy")


class OddArrays(np.ndarray):
    def copy(self, *args, **more):
        raise PanicException("no copy")


class LyingList(list):
    def __len__(self):
        return 1

    def __iter__(self):
        yield from (1.0, 2.0, 3.0)


def nested(depth):
    value = 1.0
    for _ in range(depth):
        value = [value]
    return value


def in_itself():
    value = {}
    value["score"] = value
    return value


OUTPUTS = {
    "surrogate": lambda: "\ud800",
    "surrogate_key": lambda: {"\ud800": 1.0},
    "number_key": lambda: {1: 1.0},
    "mixed_keys": lambda: {1: 1.0, "a": 2.0},
    "object": object,
    "objects": lambda: np.array([object()], object),
    "odd_array": OddArray,
    "odd_arrays": lambda: [OddArray()],
    "odd_class": OddClass,
    "odd_copy": OddCopy,
    "odd_mapping": lambda: OddMapping(score=1.0),
    "generator": lambda: (at for at in range(3)),
    "nested": lambda: nested(5000),
    "nested_maps": in_itself,
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"x"),
    "decimal": lambda: decimal.Decimal(1),
    "date": lambda: dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    "dates": lambda: np.array(["2000-01-01"], "M8[s]"),
    "complex": lambda: np.array([1j]),
    "records": lambda: np.zeros(2, [("a", "f4")]),
    "texts": lambda: np.array(["a"]),
    "long_float": lambda: np.ones(2, np.longdouble),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "masked_list": lambda: [np.ma.masked, 1.0],
    "whole": lambda: 2**70,
    "nothing": lambda: None,
}


class Hostile(Model):
    """Does in each stage what the text of a row says, and when loaded what its version says."""

    def load(self, context):
        self.act("load", context.version)

    def act(self, stage, said):
        if said.startswith(f"{stage}:") or stage == "load":
            name = said.rpartition(":")[2]
            error = {**ERRORS, **REFUSALS}.get(name)
            if error is not None:
                raise error()

    def preprocess(self, row):
        text = row["text"]
        self.act("preprocess", text)
        stage, _, name = text.partition(":")
        if stage == "truncated":
            return Prepared(text, 1, LENGTHS[name])
        if stage == "odd_length":
            return Prepared(text, OddNumber(3))
        return Prepared(text, LENGTHS[name] if stage == "length" else 1)

    @property
    def stack(self):
        return False

    def predict(self, rows, context):
        for text in rows:
            self.act("predict", text)
        if rows == ["lying"]:
            return LyingList(rows)
        return [self.output(text) for text in rows]

    def output(self, text):
        stage, _, name = text.partition(":")
        if stage == "error":
            return {**ERRORS, **REFUSALS}[name]()
        if text == "odd arrays":
            return {"upper": np.ones(2).view(OddArrays)}
        return OUTPUTS[name]() if stage == "output" else {"upper": text}

    def postprocess(self, row):
        text = row.get("upper", "") if type(row) is dict else ""
        if type(text) is str and text:
            self.act("postprocess", text)
            return {"upper": text.upper()}
        return row


def no_recursion():
    sys.setrecursionlimit(60)


# Name → what a model does to the process it runs in; its logs stay what they are.
SILENCERS = {
    "dict_config": lambda: logging.config.dictConfig(
        {"version": 1, "disable_existing_loggers": True, "root": {"handlers": []}}
    ),
    "disable": lambda: logging.disable(logging.CRITICAL),
    "shutdown": logging.shutdown,
    "structlog": lambda: structlog.configure(
        processors=[lambda *_: (_ for _ in ()).throw(structlog.DropEvent)],
        cache_logger_on_first_use=True,
    ),
    "warnings": lambda: warnings.simplefilter("error"),
    "stdout": lambda: setattr(sys, "stdout", None),
    "stderr": lambda: setattr(sys, "stderr", None),
    "closed": sys.stderr.close,
    "descriptors": lambda: (os.close(1), os.close(2)),
    "hooks": lambda: (setattr(sys, "excepthook", None), setattr(threading, "excepthook", None)),
    "environ": os.environ.clear,
    "recursion": no_recursion,
    "chdir": lambda: os.chdir("/"),
}


class OddAttributes(Model):
    """Stacks by attributes that are code, and go wrong once a request has come."""

    wrong = ""

    def load(self, context):
        self.version = context.version

    @property
    def stack(self):
        if self.wrong == "stack":
            raise PanicException("no stack")
        return True

    @property
    def pad_value(self):
        if self.wrong == "pad_value":
            raise PanicException("no value")
        return 10**400 if self.wrong == "huge" else 0

    @property
    def pad_side(self):
        if self.wrong == "pad_side":
            raise PanicException("no side")
        return "right"

    def preprocess(self, row):
        self.wrong = self.version
        return {"x": np.ones(len(row["text"]))}

    def predict(self, rows, context):
        return [1.0 for _ in rows["x"]]


class Silencer(Model):
    """Does to its process, when loaded, what its version says."""

    def load(self, context):
        self.logger = context.logger
        SILENCERS[context.version]()

    def predict(self, rows, context):
        self.logger.warning("from_the_model", text=rows[0]["text"])
        raise KeyError("told in the log")


class Chatty(Model):
    """Prints, asks, and handles signals, as the text of a row says."""

    def predict(self, rows, context):
        return [self.answer(row["text"]) for row in rows]

    def answer(self, text):
        if text == "input":
            return input("your name? ")
        if text == "signal":
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        if text == "megabytes":
            for _ in range(50_000):
                print("x" * 99)  # noqa: T201
        print("printed", "\ud800", text)  # noqa: T201
        os.write(1, b"from a library\n")
        return text.upper()

    def example(self, length):
        return Row({"text": "x"})


MODELS = {
    "hostile": Hostile,
    "odd_attributes": OddAttributes,
    "silencer": Silencer,
    "chatty": Chatty,
}


def open_hostile(load, _):
    return VersionFiles(
        model_class=MODELS[load.model], folder=Path(load.store), parameters={}, lineage="0" * 16
    )


if __name__ == "__main__":
    main(lambda _: open_hostile)
