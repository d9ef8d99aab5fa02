"""The program as the main process starts it, on versions published in a real store."""

import os
import signal
from dataclasses import replace

import pytest
from support.device_process import (
    REAL,
    TIMEOUT_S,
    columns_of,
    failure_kind,
    running_device,
    texts,
)

from batchfleet.consumer.link.protocol import Prepare, PreparedRows, PrepareRun, Ready, Refused, Run
from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import Golden
from batchfleet.models.runtimes.echo import echo_digest
from batchfleet.models.store import Store
from batchfleet.wire.errors import ErrorKind


@pytest.fixture
def store(store_path):
    return Store(str(store_path))


@pytest.fixture
def device():
    with running_device(REAL) as running:
        yield running


FAULTY = replace(builtin_draft("echo"), parameters={"faults": True})


def digest_of(text):
    return echo_digest({"text": text}, "1")


def test_rows_split_over_batches_are_echoed_in_order(device, store):
    manifest = store.publish(builtin_draft("echo"), {})
    ready = device.load_published(store.root, manifest)
    assert isinstance(ready, Ready), ready
    assert ready.lineage == manifest.lineage
    assert [point[:2] for point in ready.curve] == [[rows, 1] for rows in (1, 2, 4, 8, 16, 32)]
    words = ["one", "two", "three", "four", "five"]
    item, other = device.item(texts(*words)), device.item(texts("other"))
    device.send(Prepare(device.lane, [item, other]))
    assert len(device.expect(PreparedRows).items) == 2
    for number, rows in enumerate([(3, 0), (4,), (2, 1)]):
        handles = [(item.request, row) for row in rows] + [(other.request, 0)]
        device.send(Run(number, device.lane, handles))
    ends = device.ends_of([item.request, other.request])
    assert columns_of(ends[item.request])["digest"] == [digest_of(word) for word in words]
    assert columns_of(ends[other.request])["digest"] == [digest_of("other")]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("!raise", ErrorKind.MODEL_ERROR),
        ("!raise@preprocess", ErrorKind.MODEL_ERROR),
        ("!raise@postprocess", ErrorKind.MODEL_ERROR),
        ("!wrong_count", ErrorKind.BAD_OUTPUT),
        ("!wrong_count@postprocess", ErrorKind.BAD_OUTPUT),
        ("!nan", ErrorKind.BAD_OUTPUT),
        ("!memory_error", ErrorKind.DEVICE_MEMORY),
    ],
)
def test_one_faulty_row_of_eight_fails_alone(device, store, fault, kind):
    device.load_published(store.root, store.publish(FAULTY, {}))
    items = [device.item(texts(text)) for text in ("a", "b", "c", "d", "e", fault, "g", "h")]
    device.send(PrepareRun(1, device.lane, items))
    ends = device.ends_of([item.request for item in items])
    culprit = ends.pop(items[5].request)
    assert failure_kind(culprit) is kind
    digests = [columns_of(answer)["digest"] for _, answer in sorted(ends.items())]
    assert digests == [[digest_of(text)] for text in "abcdegh"]


def test_a_segmentation_fault_ends_the_process_and_is_seen(device, store):
    device.load_published(store.root, store.publish(FAULTY, {}))
    device.send(PrepareRun(1, device.lane, [device.item(texts("!segv"))]))
    assert device.process.wait(TIMEOUT_S) == -signal.SIGSEGV


@pytest.mark.parametrize("parameters", [{}, {"faults": False}, {"faults": "false"}, {"faults": 1}])
def test_no_caller_strikes_unless_the_manifest_says_so(device, store, parameters):
    """X15: what `models import echo` publishes has no fault switches."""
    draft = replace(builtin_draft("echo"), parameters=parameters)
    assert builtin_draft("echo").parameters == {}
    device.load_published(store.root, store.publish(draft, {}))
    words = ["!segv", "!raise", "!hang@preprocess", "!grow:4000"]
    item = device.item(texts(*words), parameters=b'{"fault": "segv"}')
    device.send(PrepareRun(1, device.lane, [item]))
    ends = device.ends_of([item.request])
    assert columns_of(ends[item.request])["digest"] == [digest_of(word) for word in words]


def test_a_version_that_is_not_in_the_store_is_refused(device, store):
    refused = device.load("echo", store=store.root)
    assert isinstance(refused, Refused)
    assert "has no version echo/1" in refused.message


def test_golden_examples_must_be_reproduced(device, store):
    outputs = [
        {"name": "digest", "datatype": "BYTES", "shape": [1], "data": [digest_of("hello")]},
        {"name": "length", "datatype": "INT64", "shape": [1], "data": [1]},
        {"name": "score", "datatype": "FP32", "shape": [1], "data": [0.5]},
    ]
    example = Golden(inputs=texts("hello"), outputs=outputs, tolerance=1.0)
    good = replace(builtin_draft("echo"), golden=(example,))
    assert isinstance(device.load_published(store.root, store.publish(good, {})), Ready)
    strict = replace(good, model="strict", golden=(example, replace(example, tolerance=1e-9)))
    refused = device.load_published(store.root, store.publish(strict, {}))
    assert isinstance(refused, Refused)
    assert "golden example 1 is not reproduced: output 'score' differs" in refused.message


@pytest.mark.parametrize("depth", [300, 1_100, 100_000])
def test_parameters_that_nest_too_deep_are_the_callers_fault(device, store, depth):
    """X10: refused for their own request; its neighbour runs."""
    device.load_published(store.root, store.publish(builtin_draft("echo"), {}))
    deep = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"
    items = [device.item(texts("a"), parameters=deep), device.item(texts("b"))]
    device.send(PrepareRun(1, device.lane, items))
    ends = device.ends_of([item.request for item in items])
    assert failure_kind(ends[items[0].request]) is ErrorKind.BAD_REQUEST
    assert columns_of(ends[items[1].request])["digest"] == [digest_of("b")]


def test_a_manifest_that_is_a_fifo_is_refused_at_once_and_the_next_version_loads(device, store):
    """X10: nothing waits for whoever would write to it."""
    manifest = store.publish(builtin_draft("echo"), {})
    path = store.version_folder("echo", "1") / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    refused = device.load_published(store.root, manifest)
    assert isinstance(refused, Refused)
    assert "not a regular file" in refused.message
    other = store.publish(replace(builtin_draft("echo"), model="other"), {})
    assert isinstance(device.load_published(store.root, other), Ready)
