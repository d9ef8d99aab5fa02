"""A real device process over a real socket, with models made to misbehave."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.device_models import LINEAGE
from support.device_process import (
    TEST_MODELS,
    TIMEOUT_S,
    columns_of,
    limited,
    running_device,
    signed,
    start,
    texts,
)

from batchfleet.consumer.frames import FrameChannel
from batchfleet.consumer.protocol import (
    Answers,
    Done,
    Drop,
    Failure,
    Hello,
    Load,
    Memory,
    Prepare,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
    Run,
    Stop,
    Unload,
)
from batchfleet.wire.codec import MSGPACK
from batchfleet.wire.deployment import TensorSpec
from batchfleet.wire.errors import ErrorKind, kind_of
from batchfleet.wire.tensors import encode_columns

SCORE = TensorSpec(name="score", datatype="FP32", shape=(-1, 1))


LANE = 1


@pytest.fixture
def device():
    with running_device() as running:
        yield running


@pytest.fixture(scope="module")
def shared_device():
    """For tests that load a lane of their own and leave the process as it was."""
    with running_device() as running:
        yield running


@pytest.fixture
def fifo(tmp_path):
    """A pipe that a model waits on until `release` opens it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def release(fifo):
    fifo.write_bytes(b"")


def failure_kind(end):
    assert isinstance(end, Failure), end
    return kind_of(end.code)


# Loading.


def test_a_lane_is_ready_with_lineage_memory_and_a_curve_of_every_bucket_it_takes(device):
    ready = device.load("plain", bytes_per_token=1.0, **limited(buckets=(4, 16, 64), max_length=60))
    assert isinstance(ready, Ready), ready
    assert ready.lineage == LINEAGE
    assert ready.memory_bytes > 10_000_000
    assert ready.load_ms > 0
    measured = [(rows, length) for rows, length, milliseconds in ready.curve if milliseconds > 0]
    # The lengths are those that the examples really have: here one more than was asked for.
    assert measured == [(rows, length) for rows in (1, 2, 4, 8, 16, 32) for length in (5, 17)]


@pytest.mark.parametrize(
    ("model", "fields", "reason"),
    [
        ("unloadable", {}, "unloadable/1: OSError: weights are unreadable"),
        ("coldfeet", {}, "coldfeet/1: its warm-up failed: KeyError: 'not warm'"),
        ("plain", {"device": "tpu"}, "use cpu, cpu:0-1 or cuda:N"),
        ("plain", {"device": "cpu:4095"}, "cores [4095] are not offered here"),
        ("plain", {"lineage": "f" * 16}, "is not what was deployed"),
        ("plain", signed(outputs=[SCORE]), "declared are ['score']"),
    ],
)
def test_a_version_that_cannot_be_served_is_refused_with_its_reason(
    shared_device, model, fields, reason
):
    refused = shared_device.load(model, **fields)
    assert isinstance(refused, Refused)
    assert reason in refused.message
    assert isinstance(shared_device.load("plain"), Ready)


def test_a_record_that_is_none_is_refused(device):
    device.send(Load(LANE, "plain", "1", "/", "cpu", 1, b"not JSON"))
    assert "plain/1" in device.expect(Refused).message


def test_a_lane_may_be_pinned_to_cores(device):
    core = min(os.sched_getaffinity(0))
    assert isinstance(device.load("plain", device=f"cpu:{core}"), Ready)
    assert os.sched_getaffinity(device.process.pid) == {core}


# Rows, batches and answers.


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
        device.item(
            encode_columns({"ids": np.arange(6).reshape(2, 3)}, MSGPACK), content_type=MSGPACK
        ),
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
    assert columns_of(third)["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]


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


# Who fails.


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("raise", ErrorKind.MODEL_ERROR),
        ("memory", ErrorKind.DEVICE_MEMORY),
        ("refuse", ErrorKind.SESSION_LOST),
        ("nothing", ErrorKind.BAD_OUTPUT),
        ("generator", ErrorKind.BAD_OUTPUT),
        ("wrong_count", ErrorKind.BAD_OUTPUT),
        ("nan", ErrorKind.BAD_OUTPUT),
        ("infinity", ErrorKind.BAD_OUTPUT),
        ("wide", ErrorKind.BAD_OUTPUT),
        ("object", ErrorKind.BAD_OUTPUT),
        ("surrogate", ErrorKind.BAD_OUTPUT),
        ("other_names", ErrorKind.BAD_OUTPUT),
    ],
)
def test_only_the_culprit_of_eight_rows_fails(shared_device, text, kind):
    shared_device.load("faulty")
    rows = ["a", "bb", "ccc", "dddd", "eeeee", text, "ggggggg"]
    items = [shared_device.item(texts(row)) for row in rows if row != text]
    culprit = shared_device.item(texts("first", text))
    done = shared_device.prepare_run([*items[:5], culprit, *items[5:]])
    assert len(done.rows) == 8
    if text in ("wide", "object", "surrogate", "other_names"):
        # These are faults only beside another row, or to a codec; each shows when answers are made.
        assert [end.request for end in done.failures] == [culprit.request]
    else:
        assert [(end.request, end.rows) for end in done.failures] == [(culprit.request, [1])]
    assert failure_kind(done.failures[0]) is kind
    assert {end.request for end in done.answers} == {item.request for item in items}
    scores = [columns_of(answer)["score"].item() for answer in done.answers]
    assert scores == [len(row) for row in rows if row != text]


def test_a_request_that_failed_is_forgotten_and_its_other_rows_run_no_more(device):
    device.load("faulty")
    item = device.item(texts("a", "raise", "b"))
    device.send(Prepare(LANE, [item]))
    device.expect(PreparedRows)
    device.send(Run(1, LANE, [(item.request, 1)]))
    device.send(Run(2, LANE, [(item.request, 0), (item.request, 2)]))
    assert [failure.rows for failure in device.expect(Done).failures] == [[1]]
    assert device.expect(Done) == Done(2, [], 0.0, [], [], [])


def test_the_trace_of_a_model_goes_to_the_log_and_not_to_the_caller():
    with running_device(stderr=subprocess.PIPE, text=True) as device:
        device.load("faulty")
        (failure,) = device.prepare_run([device.item(texts("raise"))]).failures
        assert failure.message == "KeyError: 'a secret of the model'"
        device.send(Stop())
        log = [json.loads(line) for line in device.process.stderr]
    (entry,) = [entry for entry in log if entry["event"] == "model_raised"]
    assert "Traceback" in entry["exception"]
    assert (entry["model"], entry["stage"]) == ("faulty", "predict")


@pytest.mark.parametrize(
    ("inputs", "fields", "kind"),
    [
        (b"{", {}, ErrorKind.BAD_INPUTS),
        (b"", {}, ErrorKind.BAD_INPUTS),
        (b"\xc1", {"content_type": MSGPACK}, ErrorKind.BAD_INPUTS),
        (b"{}", {"content_type": "text/plain"}, ErrorKind.UNSUPPORTED_CONTENT_TYPE),
        (b"[]", {}, ErrorKind.BAD_INPUTS),
        (b'{"text": []}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": [1]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["a"], "more": 1}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": [""]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["a"]}', {"parameters": b"[1]"}, ErrorKind.BAD_REQUEST),
        (b'{"text": ["a"]}', {"parameters": b"{"}, ErrorKind.BAD_REQUEST),
        (b'{"text": ["a", "b", "c"]}', {}, ErrorKind.TOO_MANY_ROWS),
        (b'{"text": ["a", "far too long"]}', {}, ErrorKind.TOO_LONG),
        (b'{"text": ["value"]}', {}, ErrorKind.BAD_INPUTS),
        (b'{"text": ["key"]}', {}, ErrorKind.MODEL_ERROR),
        (b'{"text": ["memory"]}', {}, ErrorKind.DEVICE_MEMORY),
        (b'{"text": ["nothing"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["zero"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["true"]}', {}, ErrorKind.BAD_OUTPUT),
        (b'{"text": ["empty"]}', {}, ErrorKind.BAD_OUTPUT),
    ],
)
def test_what_is_wrong_with_a_request_is_said_and_its_neighbour_runs(
    shared_device, inputs, fields, kind
):
    text = TensorSpec(name="text", datatype="BYTES")
    shared_device.load(
        "picky", **signed(inputs=[text]), **limited(max_rows_per_request=2, max_length=6)
    )
    bad, good = shared_device.item(inputs, **fields), shared_device.item(texts("good"))
    done = shared_device.prepare_run([bad, good])
    assert [failure_kind(failure) for failure in done.failures] == [kind]
    assert [failure.request for failure in done.failures] == [bad.request]
    assert "secret" not in done.failures[0].message or kind is ErrorKind.MODEL_ERROR
    assert columns_of(done.answers[0])["output"].tolist() == [4]


def test_every_row_that_preprocessing_refuses_is_named(device):
    device.load("picky")
    device.send(Prepare(LANE, [device.item(texts("a", "value", "b", "value", "key"))]))
    (failure,) = device.expect(PreparedRows).failures
    assert failure == Failure(1, 101, "the model does not like this", [1, 3])


def test_preprocessing_tells_exact_lengths_and_what_it_cut(device):
    device.load("picky")
    device.send(Prepare(LANE, [device.item(texts("array", "cut", "four"))]))
    (item,) = device.expect(PreparedRows).items
    assert (item.lengths, item.truncated_tokens) == ([4, 2, 4], 7)
    assert item.preprocess_ms > 0


# Forgetting.


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


# The connection, and the end.


def test_megabytes_in_both_directions_do_not_block(device):
    device.load("plain", **limited(max_batch_size=8))
    items = [device.item(texts(letter * 1_000_000)) for letter in "abcdefgh"]
    for number, item in enumerate(items):
        device.send(PrepareRun(number, LANE, [item]))
    ends = device.ends_of([item.request for item in items])
    assert [columns_of(ends[item.request])["text"] for item in items] == [
        [letter * 1_000_000] for letter in "abcdefgh"
    ]


def test_rows_are_prepared_while_a_batch_runs(device, fifo):
    device.load("waiting")
    device.load("picky")
    device.send(PrepareRun(1, LANE, [device.item(texts(str(fifo)))]))
    device.send(Prepare(2, [device.item(texts("beside"))]))
    assert device.expect(PreparedRows).items[0].lengths == [6]
    assert not [message for message in device.seen if isinstance(message, Done)]
    release(fifo)
    assert len(device.expect(Done).answers) == 1


def test_memory_is_reported_when_it_grows(device):
    device.load("growing")
    first = device.expect(Memory).resident_bytes
    device.prepare_run([device.item(texts("a"))])
    assert device.expect(Memory).resident_bytes > first + (16 << 20)


def test_stop_finishes_the_batch_in_hand_and_nothing_else(device, fifo):
    device.load("waiting")
    device.load("polished")
    device.send(PrepareRun(1, LANE, [device.item(texts(str(fifo)))]))
    device.send(PrepareRun(2, 2, [device.item(texts("never"))]))
    device.send(Prepare(2, [device.item(texts("marker"))]))
    device.expect(PreparedRows)
    device.send(Stop())
    device.send(Prepare(2, [device.item(texts("after"))]))
    release(fifo)
    done = device.expect(Done)
    assert (done.batch, len(done.answers)) == (1, 1)
    assert device.process.wait(TIMEOUT_S) == 0
    assert device.seen == []


def test_signals_to_the_group_do_not_end_it(device):
    for number in (signal.SIGINT, signal.SIGTERM):
        device.process.send_signal(number)
    assert isinstance(device.load("plain"), Ready)


@pytest.mark.parametrize("model", ["plain", "endless"])
def test_it_exits_when_the_main_process_closes_even_in_the_middle_of_a_batch(model):
    with running_device(stdout=subprocess.PIPE, text=True) as device:
        device.load(model)
        device.send(PrepareRun(1, LANE, [device.item(texts("a"))]))
        if model == "endless":
            assert device.process.stdout.readline() == "predicting\n"
        else:
            device.expect(Done)
        device.channel.close()
        assert device.process.wait(TIMEOUT_S) == 0


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
from support.device_process import TEST_MODELS, start
print(start(TEST_MODELS, int(sys.argv[2])).pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent_though_the_socket_stays_open():
    ours, theirs = socket.socketpair()
    channel = FrameChannel(ours)
    tests = str(Path(TEST_MODELS[1]).parents[1])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tests, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        device = int(parent.stdout.readline())
        alive = os.pidfd_open(device)
        (hello,) = channel.receive(TIMEOUT_S)
        assert hello.pid == device
        parent.kill()
        assert select.select([alive], [], [], TIMEOUT_S)[0], "the device process lives on"
    os.close(alive)
    channel.close()
    theirs.close()


def test_it_does_not_start_for_a_parent_that_is_gone_already():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start(TEST_MODELS, theirs.fileno(), parent=1, stderr=subprocess.PIPE)
        assert b"is gone already" in process.communicate(timeout=TIMEOUT_S)[1]
    assert process.returncode == 1


def test_a_model_that_calls_exit_ends_the_process_instead_of_hanging_it(device):
    device.load("faulty")
    device.send(PrepareRun(1, LANE, [device.item(texts("exit"))]))
    assert device.process.wait(TIMEOUT_S) == 70


def test_a_message_meant_for_the_main_process_ends_the_connection(device):
    device.send(Hello(1, 1, "3"))
    assert device.process.wait(TIMEOUT_S) == 70
