"""The checker of histories: every verdict from the smallest history that deserves it."""

import pytest
from fault.checker import KINDS, LATE_MS, check
from fault.history import History, read_histories, read_history


def submitted(name="a", at_ms=0, **changes):
    fields = {"digest": "d", "expected": ["ok"], "timeout_ms": 1000, **changes}
    return {"event": "submitted", "id": name, "at_ms": at_ms, **fields}


def computed(name="a", at_ms=10):
    return {"event": "computed", "id": name, "at_ms": at_ms}


def replied(name="a", at_ms=20, **changes):
    fields = {"outcome": "ok", "digest": "d", "items": 1, "body": "b", **changes}
    return {"event": "replied", "id": name, "at_ms": at_ms, **fields}


def fault(at_ms=5):
    return {"event": "fault", "name": "kill", "at_ms": at_ms}


def wiped(at_ms):
    return {"event": "wiped", "at_ms": at_ms}


GOOD = [submitted(), computed(), replied(), replied(at_ms=500)]


def test_a_good_history_holds():
    verdict = check(GOOD)
    assert verdict.holds
    assert (verdict.requests, verdict.computes, verdict.faults) == (1, 1, 0)


@pytest.mark.parametrize("lines", [[], [fault()], [wiped(0)]])
def test_an_empty_history_never_holds(lines):
    for requests_min in (0, 1):
        verdict = check(lines, requests_min)
        assert verdict.meagre
        assert not verdict.holds


def test_a_history_below_its_minimum_does_not_hold():
    assert check(GOOD, 1).holds
    assert not check(GOOD, 2).holds


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("lost", [submitted(), computed()]),
        ("lost", [submitted(at_ms=2), wiped(1)]),
        ("lost", [submitted(), replied(items=0, body="", outcome="", digest="")]),
        ("duplicate_answers", [submitted(), computed(), replied(items=2)]),
        ("changed", [*GOOD, replied(at_ms=600, body="c")]),
        ("changed", [*GOOD, replied(at_ms=600, items=0, body="", outcome="", digest="")]),
        ("wrong", [submitted(), computed(), replied(digest="e")]),
        ("wrong", [submitted(), replied(outcome="no_worker", digest="")]),
        ("wrong", [submitted(expected=["poison"]), computed(), replied()]),
        ("wrong", [submitted(), replied()]),
        ("late", [submitted(), computed(), replied(at_ms=1001 + LATE_MS)]),
        ("unexpected", [*GOOD, replied("b")]),
        ("unexpected", [*GOOD, computed("b")]),
        ("computed_too_often", [*GOOD, computed()]),
        ("computed_too_often", [*GOOD, computed(), computed(), fault()]),
    ],
)
def test_what_is_amiss_is_named_and_nothing_else(kind, lines):
    verdict = check(lines)
    assert list(verdict.complaints) == [kind]
    assert not verdict.holds


@pytest.mark.parametrize(
    "lines",
    [
        [submitted(), computed(), replied(at_ms=1000 + LATE_MS)],
        [submitted(expected=["ok", "busy"]), replied(outcome="busy", digest="")],
        [*GOOD, computed(), fault()],
        [submitted(), submitted(at_ms=1), computed(), replied()],
        [replied(), computed(), submitted()],
    ],
)
def test_what_is_in_order_is_let_pass(lines):
    assert check(lines).complaints == {}


def test_what_the_server_was_made_to_forget_is_forgiven():
    verdict = check([submitted(), wiped(1)])
    assert verdict.holds
    assert verdict.forgiven == 1
    gone = replied(at_ms=600, items=0, body="", outcome="", digest="")
    assert check([*GOOD, wiped(550), gone]).holds


def test_a_repeated_submission_counts_once_and_from_its_first_time():
    late = [submitted(), submitted(at_ms=5000), computed(), replied(at_ms=1001 + LATE_MS)]
    verdict = check(late)
    assert verdict.requests == 1
    assert verdict.late == ("a",)


def test_kinds_are_those_that_a_verdict_has():
    assert all(getattr(check(GOOD), kind) == () for kind in KINDS)


def test_histories_are_read_together_and_a_torn_line_is_left_out(tmp_path):
    first, second = History(tmp_path / "first.jsonl"), History(tmp_path / "second.jsonl")
    second.tell("submitted", id="a")
    first.tell("computed", id="a")
    first.close()
    second.close()
    with (tmp_path / "first.jsonl").open("ab") as file:
        file.write(b'{"event": "comp')
    lines = read_histories(tmp_path)
    assert [line["event"] for line in lines] == ["submitted", "computed"]
    assert all(line["pid"] > 0 for line in lines)
    assert read_history(tmp_path / "none.jsonl") == []
