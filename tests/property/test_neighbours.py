"""Two callers, any datatypes, shapes and encodings: each gets what it would get alone."""

import base64

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.device_lane import lane_of

from batchfleet.consumer.batching.batcher import WaitingRow, choose_batch
from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.consumer.device.answering import encode_answer, encode_together
from batchfleet.consumer.device.loaded_models import take_all
from batchfleet.consumer.device.preparing import prepare
from batchfleet.consumer.device.running import batch_of, keep_output, run_batch
from batchfleet.consumer.link.protocol import Item
from batchfleet.models.model import Model
from batchfleet.wire.codec import JSON, MSGPACK, encode_body
from batchfleet.wire.tensors import DATATYPES

LIMITS = lane_of(Model()).record.limits
VALUES = {
    "BOOL": [False, True],
    "FP16": [0.0, -1.5, 60000.0],
    "FP32": [0.0, 0.25, 3e38],
    "FP64": [0.5, 1e300, -7.0],
    "BF16": [1.0, -2.0, 0.0],
    "INT64": [0, 2**62 + 1, -5],
    "UINT64": [0, 2**64 - 1, 7],
}
NAMES = [*DATATYPES, "BF16", "BYTES", "text"]


class Stacking(Model):
    """Says what it sees of each row: datatype and shape, and every value."""

    stack = True

    def predict(self, batch, _):
        self.calls += 1
        columns = {name: array for name, array in batch.items() if name != "mask"}
        return [
            {
                "text": "; ".join(
                    seen(name, self.real(batch, array, at)) for name, array in columns.items()
                )
            }
            for at in range(len(batch["mask"]))
        ]

    def real(self, batch, array, at):  # noqa: ARG002  all of a row is real without `preprocess`
        return array[at]


class Padding(Stacking):
    """The first axis of a row is its length."""

    pad_value = 1

    def preprocess(self, row):
        return {name: np.asarray(value) for name, value in row.items()}

    def real(self, batch, array, at):
        return array[at][batch["mask"][at]] if array.ndim > 1 else array[at]


class ByItself(Model):
    """Puts its rows into one array itself, where their shapes allow it."""

    def predict(self, rows, _):
        self.calls += 1
        (name,) = rows[0].keys()
        values = [row[name] for row in rows]
        if len({np.shape(value) for value in values}) == 1:
            values = list(np.stack(values))
        return [{"text": seen(name, np.asarray(value))} for value in values]


def seen(name, array):
    datatype = array.dtype.kind if array.dtype.kind in "US" else array.dtype.str
    return f"{name} {datatype} {array.shape} {array.tolist()!r}"


@st.composite
def requests(draw):
    """Inputs of one caller: content type, bytes."""
    datatype = draw(st.sampled_from(NAMES))
    content_type = draw(st.sampled_from([JSON, MSGPACK]))
    rows = draw(st.integers(1, 3))
    if datatype == "text":
        words = draw(st.lists(st.text("abé", min_size=1, max_size=9), min_size=rows, max_size=rows))
        return content_type, encode_body({"text": words}, content_type)
    if datatype == "BYTES":
        words = draw(st.lists(st.binary(min_size=1, max_size=9), min_size=rows, max_size=rows))
        words = [word.strip(b"\0") or b"a" for word in words]
        data = [as_data(word, content_type) for word in words]
        return content_type, tensor_body(datatype, [rows], data, content_type)
    tail = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 2), (3, 2), (2, 1)]))
    size = rows * int(np.prod(tail))
    values = VALUES.get(datatype, [0, 1, 3])
    flat = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    data = flat
    if draw(st.booleans()):
        data = as_data(raw_bytes(datatype, flat), content_type)
    return content_type, tensor_body(datatype, [rows, *tail], data, content_type)


def raw_bytes(datatype, flat):
    if datatype == "BF16":
        return (np.array(flat, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    return np.array(flat, DATATYPES[datatype]).tobytes()


def as_data(raw, content_type):
    return raw if content_type == MSGPACK else {"b64": base64.b64encode(raw).decode()}


def tensor_body(datatype, shape, data, content_type):
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    return encode_body([tensor], content_type)


def answers(lane, callers):
    """What each caller gets, its rows in batches that the batcher cuts from those of all."""
    opened = {
        number: prepare(lane, Item(number, content_type, MSGPACK, raw, None, None, None))
        for number, (content_type, raw) in enumerate(callers)
    }
    waiting = [
        WaitingRow(number, at, length, (None, kind), 1, 0.0, 1e9)
        for number, request in opened.items()
        for at, (length, kind) in enumerate(zip(request.lengths, request.kinds, strict=True))
    ]
    while waiting:
        chosen = choose_batch(waiting, 0.0, LIMITS, CostCurve()).rows
        waiting = [row for row in waiting if row not in chosen]
        rows = [opened[row.request].take(row.row) for row in chosen]
        give_back(lane, rows)
    return [encode_answer(lane, request) for request in opened.values()]


def give_back(lane, rows):
    """Run one batch, which must not have to be cut."""
    lane.model.calls = 0
    for row, output in zip(rows, run_batch(lane, batch_of(1, rows)), strict=True):
        row.request.outputs[row.place] = keep_output(lane, output)
    assert lane.model.calls == 1


def direct_answers(lane, callers):
    """What each gets where all is one batch; None where it may not be."""
    opened = [
        prepare(lane, Item(number, content_type, MSGPACK, raw, None, None, None))
        for number, (content_type, raw) in enumerate(callers)
    ]
    lengths = [length for request in opened for length in request.lengths]
    kinds = [kind for request in opened for kind in request.kinds]
    if not lane.fits_one_batch(lengths, kinds):
        return None
    give_back(lane, take_all(opened))
    return encode_together(lane, opened) or [encode_answer(lane, one) for one in opened]


@given(st.sampled_from([Stacking, Padding, ByItself]), st.lists(requests(), min_size=2, max_size=3))
def test_a_neighbour_changes_no_answer(model, callers):
    lane = lane_of(model())
    alone = [answers(lane, [one])[0] for one in callers]
    assert answers(lane, callers) == alone
    assert answers(lane, callers[::-1]) == alone[::-1]
    assert direct_answers(lane, callers) in (None, alone)


@given(st.sampled_from([Stacking, Padding, ByItself]), requests())
def test_the_same_inputs_twice_are_one_batch(model, caller):
    lane = lane_of(model())
    assert direct_answers(lane, [caller, caller]) is not None
