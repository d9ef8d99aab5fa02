"""A real device process over a real socket, with models made to misbehave."""

import json

import numpy as np
from support.device_process import (
    columns_of,
    ends_in,
    failure_kind,
    limited,
    release,
    signed,
    texts,
)

from batchfleet.consumer.link.protocol import (
    Answers,
    Done,
    Drop,
    Failure,
    Prepare,
    PreparedRows,
    PrepareRun,
    Ready,
    Run,
    Unload,
)
from batchfleet.wire.codec import MSGPACK
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.signature import TensorSpec
from batchfleet.wire.tensors import encode_columns

SCORE = TensorSpec(name="score", datatype="FP32", shape=(-1, 1))
LANE = 1


def test_rows_of_a_request_run_in_several_batches_and_are_answered_in_input_order(device):
    device.load("faulty")
    first = device.item(texts("a", "bb", "ccc", "dddd"))
    second = device.item(texts("eeeee", "ffffff"))
    device.send(Prepare(LANE, [first, second]))
    prepared = device.expect(PreparedRows)
    assert [(item.request, item.lengths) for item in prepared.items] == [(1, [1] * 4), (2, [1] * 2)]
    batches = [[(1, 2), (2, 0)], [(2, 1), (1, 0)], [(1, 3), (1, 1)]]
    for number, rows in enumerate(batches):
        device.send(Run(number, LANE, rows))
    done = [device.expect(Done) for _ in batches]
    assert [message.batch for message in done] == [0, 1, 2]
    assert [message.rows for message in done] == batches
    assert [[answer.request for answer in message.answers] for message in done] == [[], [2], [1]]
    assert columns_of(done[2].answers[0])["score"].ravel().tolist() == [1, 2, 3, 4]
    assert columns_of(done[1].answers[0])["score"].ravel().tolist() == [5, 6]


def test_an_idle_device_prepares_runs_and_answers_in_one_message(device):
    device.load("plain")
    items = [
        device.item(texts("one")),
        device.item(texts("two"), accept=MSGPACK),
        device.item(encode_columns({"text": ["three", "four"]}, MSGPACK), content_type=MSGPACK),
    ]
    done = device.prepare_run(items, batch=7)
    assert done.batch == 7
    assert done.rows == [(1, 0), (2, 0), (3, 0), (3, 1)]
    assert [item.request for item in done.prepared] == [1, 2, 3]
    assert done.failures == []
    first, second, third = done.answers
    assert json.loads(first.outputs) == [
        {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["one"]}
    ]
    assert columns_of(second, MSGPACK) == {"text": ["two"]}
    assert columns_of(third) == {"text": ["three", "four"]}


def test_rows_of_several_kinds_are_kept_for_batches_of_one_kind(device):
    device.load("plain")
    tensors = [np.arange(2), np.arange(3), np.array([0.5]), np.array([True])]
    items = [
        device.item(encode_columns({"x": one}, MSGPACK), content_type=MSGPACK) for one in tensors
    ]
    done = device.prepare_run([*items, device.item(texts("a"))])
    assert (done.rows, done.answers, done.failures) == ([], [], [])
    kinds = [set(item.kinds) for item in done.prepared]
    assert [len(one) for one in kinds] == [1] * 5
    assert kinds[0] == kinds[1]
    assert len(set.union(*kinds)) == 4
    device.send(Run(2, LANE, [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]))
    answers = device.expect(Done).answers
    assert [columns_of(answer)["x"].tolist() for answer in answers] == [[0, 1], [0, 1, 2]]


def test_requests_too_large_for_one_batch_are_kept_for_batches_that_fit(device):
    device.load("plain", bytes_per_token=1.0, **limited(max_batch_size=3, max_batch_tokens=12))
    wide = device.item(texts("1234", "1", "1"))
    done = device.prepare_run([wide])
    assert (done.rows, done.answers, done.failures) == ([], [], [])
    assert [item.lengths for item in done.prepared] == [[5, 2, 2]]
    device.send(Run(2, LANE, [(wide.request, 0)]))
    device.send(Run(3, LANE, [(wide.request, 1), (wide.request, 2)]))
    assert device.expect(Done).rows == [(wide.request, 0)]
    assert columns_of(device.expect(Done).answers[0]) == {"text": ["1234", "1", "1"]}


def test_a_single_row_over_the_batch_limits_runs_nevertheless(device):
    device.load("plain", bytes_per_token=1.0, **limited(max_batch_tokens=4))
    done = device.prepare_run([device.item(texts("far too long"))])
    assert len(done.answers) == 1


def test_rows_are_stacked_with_padding_and_mask_where_the_model_asks(device):
    assert isinstance(device.load("stacked"), Ready)
    items = [
        device.item([{"name": "ids", "datatype": "INT64", "shape": [1, n], "data": [[2] * n]}])
        for n in (3, 1, 5)
    ]
    done = device.prepare_run(items)
    assert [item.lengths for item in done.prepared] == [[3], [1], [5]]
    assert [columns_of(answer)["output"].tolist() for answer in done.answers] == [[6], [2], [10]]


def test_only_the_outputs_wanted_come_back(device):
    device.load("polished")
    wanted = device.item(texts("ab", "c"), outputs="size")
    unknown = device.item(texts("ab"), outputs="size,colour")
    device.send(PrepareRun(1, LANE, [wanted, unknown]))
    ends = device.ends_of([wanted.request, unknown.request])
    assert columns_of(ends[wanted.request])["size"].tolist() == [2, 1]
    assert list(columns_of(ends[wanted.request])) == ["size"]
    assert failure_kind(ends[unknown.request]) is ErrorKind.BAD_REQUEST
    assert "size, upper" in ends[unknown.request].message


def test_a_declared_signature_refuses_unknown_outputs_before_they_cost_anything(device):
    device.load("faulty", **signed(outputs=[SCORE]))
    done = device.prepare_run([device.item(texts("ab"), outputs="colour")])
    assert done.rows == []
    assert failure_kind(done.failures[0]) is ErrorKind.BAD_REQUEST


def test_postprocessing_of_ones_own_comes_after_the_batch_is_done(device):
    device.load("polished")
    good, bad = device.item(texts("ab")), device.item(texts("x", "raise", "y", "raise"))
    done = device.prepare_run([good, bad])
    assert (done.answers, done.failures) == ([], [])
    answers = device.expect(Answers)
    assert columns_of(answers.answers[0])["upper"] == ["AB"]
    (failure,) = answers.failures
    assert failure == Failure(bad.request, 300, "KeyError: 'a secret of the model'", [1, 3])


def test_large_outputs_are_encoded_beside_the_device_thread(device):
    device.load("plain")
    item = device.item(texts("x" * 300_000))
    done = device.prepare_run([item])
    assert done.answers == []
    assert len(device.expect(Answers).answers[0].outputs) > 300_000


def test_preprocessing_tells_exact_lengths_and_what_it_cut(device):
    device.load("picky")
    device.send(Prepare(LANE, [device.item(texts("array", "cut", "four"))]))
    (item,) = device.expect(PreparedRows).items
    assert (item.lengths, item.truncated_tokens) == ([4, 2, 4], 7)
    assert item.preprocess_ms > 0


def test_dropped_and_unknown_rows_are_passed_over(device):
    device.load("plain")
    items = [device.item(texts(text, text)) for text in "abc"]
    device.send(Prepare(LANE, items))
    assert len(device.expect(PreparedRows).items) == 3
    device.send(Drop([1, 99]))
    device.send(Run(1, LANE, [(1, 0), (2, 0), (2, 1), (2, 1), (2, 2), (2, -1), (77, 0)]))
    done = device.expect(Done)
    assert done.rows == [(2, 0), (2, 1)]
    assert [answer.request for answer in done.answers] == [2]
    device.send(Run(2, LANE, [(1, 1), (2, 0)]))
    assert device.expect(Done) == Done(2, [], 0.0, [], [], [])
    device.send(Run(3, 99, [(3, 0)]))
    assert device.expect(Done).rows == []


def test_a_request_dropped_while_it_is_preprocessed_leaves_nothing(device, fifo):
    device.load("picky")
    slow = device.item(texts("slow"), parameters=json.dumps({"fifo": str(fifo)}).encode())
    other = device.item(texts("other"))
    device.send(Prepare(LANE, [slow, other]))
    device.send(Drop([slow.request]))
    # Loading is answered after the drop was received.
    device.load("plain")
    release(fifo)
    assert [item.request for item in device.expect(PreparedRows).items] == [other.request]
    device.send(Run(1, LANE, [(slow.request, 0), (other.request, 0)]))
    assert device.expect(Done).rows == [(other.request, 0)]


def test_an_unloaded_lane_forgets_its_requests_and_takes_no_more(device):
    device.load("plain")
    device.load("faulty")
    device.send(Prepare(LANE, [device.item(texts("a"))]))
    device.expect(PreparedRows)
    device.send(Unload(LANE))
    device.send(Run(1, LANE, [(1, 0)]))
    assert device.expect(Done).rows == []
    device.send(PrepareRun(2, LANE, [device.item(texts("b"))]))
    assert failure_kind(device.expect(Done).failures[0]) is ErrorKind.UNAVAILABLE
    assert len(device.prepare_run([device.item(texts("c"))]).answers) == 1


def test_rows_are_prepared_while_a_batch_runs(device, fifo):
    device.load("waiting")
    device.load("picky")
    device.send(PrepareRun(1, LANE, [device.item(texts(str(fifo)))]))
    device.send(Prepare(2, [device.item(texts("beside"))]))
    assert device.expect(PreparedRows).items[0].lengths == [6]
    assert not [message for message in device.seen if isinstance(message, Done)]
    release(fifo)
    assert len(device.expect(Done).answers) == 1


def floats(device, *values, **fields):
    tensor = {"name": "x", "datatype": "FP64", "shape": [len(values)], "data": values}
    return device.item([tensor], **fields)


def firsts(end):
    """The first number of each row of an answer."""
    return columns_of(end)["output"][:, 0].tolist()


def test_outputs_that_wait_for_other_batches_are_not_those_of_these(device):
    device.load("reusing")
    device.send(Prepare(LANE, [floats(device, 1, 2, 3, 4), floats(device, 5, 6)]))
    device.expect(PreparedRows)
    for number, rows in enumerate(([(1, 0), (2, 0)], [(1, 3), (1, 1)], [(2, 1), (1, 2)])):
        device.send(Run(number, LANE, rows))
    ends = device.ends_of([1, 2])
    assert firsts(ends[1]) == [1, 2, 3, 4]
    assert firsts(ends[2]) == [5, 6]


def test_large_outputs_are_encoded_while_the_model_fills_its_buffer_again(device):
    device.load("reusing")
    size = json.dumps({"size": 100_000}).encode()
    items = [floats(device, at, parameters=size, accept=MSGPACK) for at in range(12)]
    for item in items:
        device.send(PrepareRun(item.request, LANE, [item]))
    ends = device.ends_of([item.request for item in items])
    columns = [columns_of(ends[item.request], MSGPACK)["output"] for item in items]
    assert [np.unique(column).tolist() for column in columns] == [[at] for at in range(12)]


def test_postprocessing_has_its_row_while_the_model_fills_its_buffer_again(device, fifo):
    device.load("polishing", store=str(fifo.parent))
    items = [floats(device, at) for at in range(8)]
    for item in items:
        device.send(PrepareRun(item.request, LANE, [item]))
    done = [device.expect(Done) for _ in items]  # predict has filled it eight times
    assert not [message for message in done if message.answers]
    release(fifo)
    ends = device.ends_of([item.request for item in items])
    assert [firsts(ends[item.request]) for item in items] == [[at] for at in range(8)]


def test_buffers_beside_the_device_thread_are_filled_by_one_thread_at_a_time(device):
    device.load("smearing")
    items = [floats(device, at, at + 0.5) for at in range(40)]
    for item in items:
        device.send(Prepare(LANE, [item]))
    batch = 0
    ends = {}
    while len(ends) < len(items):
        message = device.expect(PreparedRows, Answers, Done)
        for prepared in getattr(message, "items", ()):
            batch += 1
            device.send(Run(batch, LANE, [(prepared.request, 0), (prepared.request, 1)]))
        ends |= ends_in(message)
    assert [firsts(ends[item.request]) for item in items] == [[at, at + 0.5] for at in range(40)]
