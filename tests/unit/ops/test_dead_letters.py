"""Reading dead letters, and the requests and names that are made of them."""

from itertools import islice

import pytest

from batchfleet.ops.dead_letters import NotReplayableError, as_request, read_letter, replay_ids
from batchfleet.wire.codec import JSON, MSGPACK
from batchfleet.wire.errors import ErrorBody, ErrorKind
from batchfleet.wire.limits import NAME_BYTES_MAX
from batchfleet.wire.names import is_name
from batchfleet.wire.reply import Envelope, Receipt, Usage, encode_answer, encode_error
from batchfleet.wire.request import parse_request

STREAM = "bf:{m}:q:1:high:32"
ENTRY_ID = b"1700000000123-4"


def reply(accept=JSON, receipt=None):
    envelope = Envelope(id="a", tenant="t", accept=accept, model="m", version="1")
    error = ErrorBody(ErrorKind.ATTEMPTS_EXHAUSTED, "3 attempts failed")
    return encode_error(envelope, error, receipt)


def fields(**changes):
    found = {
        "id": "a",
        "tenant": "t",
        "deadline": "1700000060000",
        "inputs": '{"text": ["x"]}',
        "stream": STREAM,
        "reply": reply(receipt=Receipt(attempt=3)),
        **changes,
    }
    return [
        part if isinstance(part, bytes) else part.encode()
        for pair in found.items()
        if pair[1] is not None
        for part in pair
    ]


def letter(**changes):
    return read_letter(ENTRY_ID, fields(**changes))


def test_a_letter_tells_when_what_and_why():
    assert letter().to_json() == {
        "letter": "1700000000123-4",
        "written_ms": 1_700_000_000_123,
        "tenant": "t",
        "id": "a",
        "version": "1",
        "priority": "high",
        "error": "attempts_exhausted",
        "message": "3 attempts failed",
        "attempts": 3,
    }


def test_a_reply_in_msgpack_and_without_a_receipt_is_read_too():
    found = letter(reply=reply(MSGPACK), attempt="2")
    assert (found.attempts, found.to_json()["error"]) == (2, "attempts_exhausted")


def test_a_letter_whose_reply_is_no_error_shows_its_status():
    envelope = Envelope(id="a", tenant="t", accept=JSON, model="m")
    found = letter(reply=encode_answer(envelope, b"[]", Usage(), Receipt()))
    assert found.to_json()["error"] == "ok"


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": None},
        {"reply": None},
        {"stream": "elsewhere"},
        {"reply": "{"},
        {"id": None},
        {"inputs": None},
        {"deadline": "soon"},
        {"meta": b"\xff"},
    ],
)
def test_what_is_no_letter_is_told_as_such(changes):
    with pytest.raises(ValueError):
        letter(**changes)


def test_a_replayed_request_is_what_it_was_but_for_its_id():
    kept = {
        "accept": MSGPACK,
        "outputs": "score",
        "parameters": '{"k": 1}',
        "version": "1",
        "timeout_ms": "5000",
        "result_ttl_ms": "9000",
        "rows": "3",
        "truncate": "end",
        "meta": "mine",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    request = as_request(letter(**kept, attempt="3", retries="0"), "a.r1")
    again = parse_request(request.to_fields(), 1000)
    assert again == request
    assert (again.id, again.priority, again.retries) == ("a.r1", "high", 2)
    assert again.inputs == b'{"text": ["x"]}'
    for name, value in kept.items():
        found = getattr(again, name)
        assert (found.decode() if isinstance(found, bytes) else str(found)) == value


def test_inputs_at_a_url_are_named_again():
    url = "https://data.example/1"
    request = as_request(letter(inputs=None, inputs_at=url, inputs_bytes="7"), "a.r1")
    assert (request.inputs_at, request.inputs_bytes, request.inputs) == (url, 7, b"")
    assert request.retries is None


@pytest.mark.parametrize("changes", [{"inputs": ""}, {"inputs": None, "inputs_at": "blob"}])
def test_inputs_that_are_gone_cannot_be_sent_again(changes):
    with pytest.raises(NotReplayableError):
        as_request(letter(**changes), "a.r1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a", ["a.r1", "a.r2"]),
        ("a.r1", ["a.r2", "a.r3"]),
        ("a.r99", ["a.r100", "a.r101"]),
        ("a.", ["a.r1", "a.r2"]),
        ("a.rx", ["a.rx.r1", "a.rx.r2"]),
        ("x" * NAME_BYTES_MAX, [f"{'x' * (NAME_BYTES_MAX - 3)}.r{at}" for at in (1, 2)]),
    ],
)
def test_names_of_replays_count_on_and_are_names(old, new):
    found = list(islice(replay_ids(old), 2))
    assert found == new
    assert all(is_name(name) for name in found)
