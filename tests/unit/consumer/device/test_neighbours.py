"""Whatever a model does with what it is given, or gave: each row is answered as alone."""

import json

import numpy as np
import pytest
from support.device_lane import lane_of, prepared, run_together
from support.manual_clock import ManualClock

from batchfleet.consumer.device.answering import encode_answer
from batchfleet.consumer.device.golden import check_golden
from batchfleet.consumer.device.loaded_models import take_all
from batchfleet.consumer.device.preparing import prepare
from batchfleet.consumer.device.running import batch_of, run_batch
from batchfleet.consumer.device.warming import warm_up
from batchfleet.consumer.link.protocol import Item
from batchfleet.models.manifest import Golden
from batchfleet.models.model import Model, Prepared, Row
from batchfleet.wire.codec import JSON, MSGPACK, decode_body, encode_body
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import ErrorKind, RequestError
from batchfleet.wire.tensors import decode_columns

ROWS = np.array([8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0])
HALVES = (ROWS / 2).tolist()


class Halving(Model):
    """Halves each row in place, and cannot take more than two rows."""

    def __init__(self, error=RuntimeError, most=2):
        self.error = error
        self.most = most

    def predict(self, rows, _):
        for row in rows:
            row["x"][...] /= 2
        if len(rows) > self.most:
            raise self.error
        return [row["x"] for row in rows]


class Emptying(Model):
    """Takes the rows out of its list."""

    def predict(self, rows, context):
        outputs = []
        while rows:
            outputs.append(rows.pop(0)["x"] / 2)
        context.lengths.clear()
        return outputs


def singles(lane, values=ROWS):
    return [prepared(lane, {"x": np.array([x])}, number) for number, x in enumerate(values, 1)]


def numbers(results):
    return [float(np.squeeze(one)) for one in results]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
@pytest.mark.parametrize("kind", ["plain", "preprocessed", "stacked"])
def test_a_run_that_failed_leaves_nothing_to_the_next(kind, error):
    class Plain(Halving):
        pass

    class Preprocessed(Halving):
        def preprocess(self, row):
            return {"x": row["x"]}

    class Stacked(Halving):
        stack = True

        def predict(self, rows, _):
            rows["x"][...] /= 2
            if len(rows["x"]) > self.most:
                raise self.error
            return rows["x"]

    model = {"plain": Plain, "preprocessed": Preprocessed, "stacked": Stacked}[kind](error)
    lane = lane_of(model)
    assert numbers(run_together(lane, prepared(lane, {"x": ROWS.copy()}))) == HALVES
    assert numbers(run_together(lane, *singles(lane))) == HALVES


def test_the_rows_list_and_lengths_belong_to_the_model():
    lane = lane_of(Emptying())
    assert numbers(run_together(lane, *singles(lane))) == HALVES
    assert numbers(run_together(lane, *singles(lane, ROWS[:1]))) == HALVES[:1]


def test_preprocess_may_keep_and_change_what_it_was_given():
    class Hoarding(Halving):
        """Works in the row's own memory, keeps it, and spoils it at the next row."""

        kept = None

        def preprocess(self, row):
            if self.kept is not None:
                self.kept[...] = -1
            self.kept = row["x"]
            self.kept += 0
            return {"x": self.kept}

    lane = lane_of(Hoarding())
    assert numbers(run_together(lane, *singles(lane))) == HALVES
    assert numbers(run_together(lane, prepared(lane, {"x": ROWS.copy()}))) == HALVES


@pytest.mark.parametrize(
    "wrap",
    [
        lambda buffer: {"x": buffer},
        lambda buffer: Prepared({"x": buffer}, 1),
        lambda buffer: {"x": buffer[...]},
    ],
)
def test_preprocess_may_give_one_buffer_each_time(wrap):
    class Reusing(Halving):
        buffer = np.zeros(())

        def preprocess(self, row):
            self.buffer[...] = row["x"]
            return wrap(self.buffer)

    lane = lane_of(Reusing(most=100))
    assert numbers(run_together(lane, *singles(lane))) == HALVES


class Stamping(Model):
    """Writes down parameters where its rows can find them."""

    def predict(self, rows, context):
        seen = [json.loads(json.dumps(row.parameters)) for row in rows]
        for row in rows:
            row.parameters["list"].append(1)
            row.parameters["more"] = 1
        whole = dict(context.parameters)
        context.parameters.clear()
        context.parameters["list"] = []
        if len(rows) > 1:
            raise KeyError
        return [{"text": json.dumps([whole, one])} for one in seen]


def test_parameters_belong_to_a_row_and_a_run():
    lane = lane_of(Stamping())
    requests = [
        prepared(lane, {"x": np.arange(3)}, number, parameters=b'{"list": [0]}')
        for number in (1, 2)
    ]
    assert [json.loads(one["text"]) for one in run_together(lane, *requests)] == [
        [{"list": [0]}, {"list": [0]}]
    ] * 6


def test_no_parameters_can_be_written_to_as_well():
    class Writing(Model):
        def predict(self, rows, context):
            context.parameters["a"] = 1
            rows[0].parameters["a"] = 1
            return [row["x"] for row in rows]

    lane = lane_of(Writing())
    assert numbers(run_together(lane, *singles(lane))) == ROWS.tolist()


X = np.array([[1.0, 2.0]])
ENCODINGS = {
    "msgpack bytes": (MSGPACK, X.tobytes()),
    "msgpack list": (MSGPACK, [1.0, 2.0]),
    "json list": (JSON, [1.0, 2.0]),
    "json base64": (JSON, {"b64": "AAAAAAAA8D8AAAAAAAAAQA=="}),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("datatype", ["FP64", "BF16"])
def test_inputs_are_writable_however_they_came(encoding, datatype):
    class Writing(Model):
        def predict(self, rows, _):
            for row in rows:
                assert row["x"].base is None
                row["x"] += 1
            return [row["x"] for row in rows]

    content_type, data = ENCODINGS[encoding]
    if datatype == "BF16" and not isinstance(data, list):
        data = b"\x80\x3f\x00\x40" if content_type == MSGPACK else {"b64": "gD8AQA=="}
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 2], "data": data}
    lane = lane_of(Writing())
    body = encode_body([tensor], content_type)
    request = prepare(lane, Item(1, content_type, JSON, body, None, None, None))
    (output,) = run_together(lane, request)
    assert output.tolist() == [2.0, 3.0]


class Fickle(Halving):
    """Its preprocessing says another thing the second time."""

    def __init__(self, again):
        super().__init__(most=1)
        self.again = again
        self.seen = set()

    def preprocess(self, row):
        x = float(row["x"])
        if x == ROWS[2] and x in self.seen:
            return self.again(row)
        self.seen.add(x)
        return Prepared({"x": row["x"]}, 1)


def refuse(_):
    raise ValueError("not again")


@pytest.mark.parametrize(
    ("again", "kind"),
    [
        (lambda row: Prepared({"x": row["x"]}, 2), ErrorKind.BAD_OUTPUT),
        (lambda _: None, ErrorKind.BAD_OUTPUT),
        (refuse, ErrorKind.BAD_INPUTS),
        (lambda row: 1 / 0, ErrorKind.MODEL_ERROR),  # noqa: ARG005
    ],
)
def test_who_cannot_be_prepared_again_fails_alone(again, kind):
    lane = lane_of(Fickle(again))
    results = run_together(lane, *singles(lane))
    assert isinstance(results[2], RequestError)
    assert results[2].kind is kind
    assert numbers(results[:2] + results[3:]) == HALVES[:2] + HALVES[3:]


def test_with_stack_another_kind_the_second_time_fails_alone():
    class Stacked(Fickle):
        stack = True

        def predict(self, rows, _):
            if len(rows["x"]) > 1:
                raise RuntimeError
            return rows["x"] / 2

    lane = lane_of(Stacked(lambda row: Prepared({"x": row["x"].astype(np.int32)}, 1)))
    results = run_together(lane, *singles(lane))
    assert results[2].kind is ErrorKind.BAD_OUTPUT
    assert numbers(results[:2] + results[3:]) == HALVES[:2] + HALVES[3:]


class Buffered(Model):
    """Fills one buffer each time, and gives parts of it."""

    def __init__(self, wrap, most=100):
        self.buffer = np.zeros(8)
        self.wrap = wrap
        self.most = most

    def predict(self, rows, _):
        if len(rows) > self.most:
            raise MemoryError
        self.buffer[: len(rows)] = [row["x"] / 2 for row in rows]
        return self.wrap(self.buffer[: len(rows)])


WRAPS = {
    "an array": lambda buffer: buffer,
    "views": list,
    "arrays in maps": lambda buffer: [{"y": buffer[at : at + 1]} for at in range(len(buffer))],
    "maps in tuples": lambda buffer: tuple(
        {"y": (buffer[at : at + 1],)} for at in range(len(buffer))
    ),
}


def value_of(output):
    while isinstance(output, dict | tuple):
        (output,) = output.values() if isinstance(output, dict) else output
    return float(np.squeeze(output))


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_halves_may_be_given_in_one_buffer(wrap):
    lane = lane_of(Buffered(wrap, most=1))
    assert [value_of(one) for one in run_together(lane, *singles(lane))] == HALVES


def test_postprocess_may_give_one_buffer_each_time():
    class Reusing(Model):
        buffer = np.zeros(1)

        def predict(self, rows, _):
            return [row["x"] for row in rows]

        def postprocess(self, row):
            self.buffer[...] = row / 2
            return {"y": self.buffer}

    lane = lane_of(Reusing())
    request = prepared(lane, {"x": ROWS.copy()})
    request.outputs = run_together(lane, request)
    columns = decode_columns(decode_body(encode_answer(lane, request), MSGPACK))
    assert columns["y"].ravel().tolist() == HALVES


def test_golden_examples_may_be_answered_from_one_buffer():
    tensor = {"name": "x", "datatype": "FP64", "shape": [8], "data": ROWS.tolist()}
    outputs = [{"name": "output", "datatype": "FP64", "shape": [8, 1], "data": HALVES}]
    lane = lane_of(Buffered(lambda buffer: [buffer[at : at + 1] for at in range(len(buffer))]))
    check_golden(lane, [Golden(inputs=[tensor], outputs=outputs)])


@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.parametrize("preprocesses", [False, True])
def test_warm_up_gives_each_row_of_each_batch_a_value_of_its_own(stacks, preprocesses):
    class Doubling(Model):
        stack = stacks

        def predict(self, rows, _):
            columns = rows["x"] if stacks else [row["x"] for row in rows]
            assert [one.tolist() for one in columns] == [[1.0]] * len(columns)
            for one in columns:
                one[...] = 2
            if not stacks:
                rows.clear()
            return list(columns)

        def example(self, _):
            return EXAMPLE

    class Preprocessed(Doubling):
        def preprocess(self, row):
            assert row["x"].tolist() == [1.0]
            row["x"] += 0
            return row

    lane = lane_of(
        Preprocessed() if preprocesses else Doubling(),
        limits=Limits(max_batch_size=4, buckets=(1,)),
    )
    curve = warm_up(lane, ManualClock())
    assert [rows for rows, _, _ in curve] == [1, 2, 4]
    assert EXAMPLE["x"].tolist() == [1.0]


EXAMPLE = Row({"x": np.ones(1)})


def test_a_batch_that_memory_cuts_is_not_prepared_again():
    class Counting(Buffered):
        prepared = 0

        def preprocess(self, row):
            self.prepared += 1
            return row

    lane = lane_of(Counting(list, most=2))
    run_together(lane, *singles(lane))
    lane.model.prepared = 0
    requests = singles(lane)
    assert numbers(run_together(lane, *requests)) == HALVES
    assert lane.model.prepared == len(requests)


def test_rows_of_a_request_that_ran_in_parts_are_prepared_again_one_by_one():
    lane = lane_of(Halving(most=1))
    request = prepared(lane, {"x": ROWS.copy()})
    first, second = take_all([request])[:3], take_all([request])[3:]
    assert numbers(run_batch(lane, batch_of(1, second))) == HALVES[3:]
    assert numbers(run_batch(lane, batch_of(2, first))) == HALVES[:3]
