import pytest

from batchfleet.wire.errors import RequestError
from batchfleet.wire.request import cancelled_id, find_id, parse_request


def test_warnings_leave_room_for_eight_of_a_thousand_faults():
    unknown = [part for at in range(60) for part in (b"%d" % at + b"timeout_ms" * 10, b"")]
    flat = [b"id", b"a", b"inputs", b"x", b"traceparent", b"?", *unknown]
    request = parse_request(flat, 10)
    assert len(request.warnings) == 8
    assert request.traceparent is None
    assert "traceparent" in request.warnings[0]


@pytest.mark.parametrize(
    ("given", "meant"), [("time_out_ms", "timeout_ms"), ("input", "inputs"), ("Version", "version")]
)
def test_a_hint_names_the_nearest_field(given, meant):
    request = parse_request([b"id", b"a", b"inputs", b"x", given.encode(), b"1"], 10)
    assert request.warnings == (f"unknown field '{given}' was ignored; did you mean {meant}?",)


def test_the_first_repeated_field_is_named():
    with pytest.raises(RequestError, match="'meta' is given twice"):
        parse_request([b"id", b"a", b"meta", b"1", b"meta", b"1", b"id", b"a"], 10)


def test_an_id_with_a_line_feed_at_its_end_is_no_id():
    assert find_id([b"id", b"a\n", b"inputs", b"x"]) is None
    assert find_id([b"id", b"a", b"inputs", b"x"]) == "a"


def test_hostile_names_are_shown_quoted_and_cut():
    with pytest.raises(RequestError) as caught:
        parse_request([b"id", b"\x1b[31m\n" * 1000, b"inputs", b"x"], 10)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("flat", "found"),
    [
        ([b"id", b"a", b"cancel", b"1"], "a"),
        ([b"cancel", b"1", b"id", b"a"], "a"),
        ([b"id", b"a", b"cancel", b"1", b"meta", b"x"], "a"),
        ([b"id", b"a", b"cancel", b"0"], None),
        ([b"id", b"a", b"cancel", b"1", b"inputs", b"x"], None),
        ([b"id", b"a", b"cancel", b"1", b"inputs_at", b"blob"], None),
        ([b"id", b"a b", b"cancel", b"1"], None),
        ([b"cancel", b"1"], None),
        ([b"id", b"a", b"id", b"b", b"cancel", b"1"], None),
        ([b"id", b"a", b"inputs", b"x"], None),
        ([], None),
    ],
)
def test_an_entry_that_takes_a_request_back_holds_an_id_and_no_inputs(flat, found):
    assert cancelled_id(flat) == found


@pytest.mark.parametrize("value", [b"0", b"1", b"yes"])
def test_cancel_beside_inputs_is_a_bad_request(value):
    with pytest.raises(RequestError, match="cancel must be 1"):
        parse_request([b"id", b"a", b"inputs", b"x", b"cancel", value], 10)
