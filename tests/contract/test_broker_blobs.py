"""Blobs in the scripts: what lies elsewhere counts, goes with its request, and is never missed."""

from support.broker_wire import ANSWER, TENANT, TTL_MS

from batchfleet.broker import requests
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.wire.limits import BLOB_MARGIN_MS

INPUTS, OUTPUTS = b"i" * 70_000, b"o" * 70_000


def send_blob(wire, request_id, size=70_000):
    """Store inputs and accept an entry that points to them."""
    wire.run(requests.store_blob(wire.keys, TENANT, request_id, INPUTS, TTL_MS))
    item = wire.item(request_id, wire.enter(request_id, inputs=""))
    fields = [*item.fields, b"inputs_bytes", b"%d" % size]
    return wire.accept(item._replace(inputs=b"", inputs_at="blob", fields=fields))[0]


def blobs(wire, request_id):
    names = (wire.keys.blob(TENANT, request_id), wire.keys.outputs_blob(TENANT, request_id))
    return [wire.ask("GET", name) for name in names]


def test_the_work_entry_says_where_the_inputs_lie(wire):
    assert send_blob(wire, "a") is Accepted.OK
    wire.join()
    (work,) = wire.take()
    assert (work.inputs, work.inputs_at, work.inputs_bytes) == (b"", "blob", len(INPUTS))
    assert wire.run(requests.blob(wire.keys, TENANT, "a", 100_000)) == INPUTS
    assert wire.run(requests.blob(wire.keys, TENANT, "a", 99)) == INPUTS[:100]
    assert wire.run(requests.blob(wire.keys, TENANT, "b", 99)) == b""
    assert wire.ingress_left() == (0, 0)


def test_inputs_elsewhere_count_against_what_is_taken_at_once(wire):
    for at in range(40):
        assert send_blob(wire, f"r{at}", requests.TAKE_BYTES_MAX) is Accepted.OK
    wire.join()
    taken = wire.take()
    assert 1 <= len(taken) < 40
    assert wire.ask("LLEN", wire.bell) == 1


def test_finishing_removes_the_inputs_and_writes_the_outputs_with_the_reply(wire):
    send_blob(wire, "a")
    wire.open("b")
    wire.join()
    first, second = wire.take()
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in (first, second)]
    ends = [end._replace(outputs=OUTPUTS, has_blob=True) for end in ends]
    assert wire.finish("w1", *ends) == [Finished.ANSWERED] * 2
    assert blobs(wire, "a") == blobs(wire, "b") == [None, OUTPUTS]
    left = [
        wire.ask("PTTL", name)
        for name in (wire.reply_key("a"), wire.keys.outputs_blob(TENANT, "a"))
    ]
    assert left[0] <= TTL_MS < left[1] <= TTL_MS + BLOB_MARGIN_MS


def test_items_with_and_without_blobs_in_one_call(wire):
    send_blob(wire, "b")
    wire.open("a", "c")
    wire.join()
    works = {work.id: work for work in wire.take()}
    ends = {n: wire.end(n, ANSWER, w.stream, w.entry_id) for n, w in works.items()}
    ends["b"] = ends["b"]._replace(has_blob=True)
    ends["c"] = ends["c"]._replace(outputs=OUTPUTS)
    assert wire.finish("w1", *(ends[name] for name in "abc")) == [Finished.ANSWERED] * 3
    assert [blobs(wire, name) for name in "abc"] == [[None, None], [None, None], [None, OUTPUTS]]
    assert [wire.replies(name) for name in "abc"] == [[ANSWER]] * 3


def test_who_comes_second_touches_no_blob(wire):
    send_blob(wire, "a")
    wire.join()
    (work,) = wire.take()
    expired = wire.end("a", b"expired")._replace(has_blob=True)
    assert wire.finish("", expired) == [Finished.ANSWERED]
    assert blobs(wire, "a") == [None, None]
    late = wire.end("a", ANSWER, work.stream, work.entry_id)._replace(outputs=OUTPUTS)
    assert wire.finish("w1", late) == [Finished.CLOSED]
    assert blobs(wire, "a") == [None, None]
    assert wire.replies("a") == [b"expired"]
