"""What `make acceptance ONLY=rolls` makes of what it has seen."""

from types import SimpleNamespace

import orjson
import pytest
from acceptance.measuring.rolls.gaps import Mark, Span, longest_gap_ms, misnamed
from acceptance.measuring.rolls.records import Record, torn
from acceptance.measuring.steady_load import LoadPlan, Sent, SteadyLoad
from support.fleet import digests

from batchfleet.ops.rolls.state import Phase, RollState


def load_of(*requests):
    plan = LoadPlan(model="m", rate_per_s=1.0, timeout_ms=1)
    return SteadyLoad(SimpleNamespace(), plan, list(requests))


def answered(at, version="1", **values):
    outputs = {"digest": digests(["hello"], version)}
    return Sent(at, over_at=at, outcome="ok", version=version, outputs=outputs, **values)


def test_a_gap_reaches_from_answer_to_answer_and_to_the_ends():
    load = load_of(answered(1.0), answered(1.5), Sent(2.0, over_at=2.0, outcome="busy"))
    assert longest_gap_ms(load, Span(began=0.9, ended=1.6)) == pytest.approx(500)
    assert longest_gap_ms(load, Span(began=0.0, ended=1.6)) == pytest.approx(1000)
    assert longest_gap_ms(load, Span(began=1.0, ended=4.0)) == pytest.approx(2500)


def test_an_answer_of_another_version_than_it_names_is_found():
    other = answered(2.0, "2")
    other.version = "1"
    assert misnamed(load_of(answered(1.0), answered(2.0, "2"))) == 0
    assert misnamed(load_of(answered(1.0), other)) == 1


def test_later_answers_are_those_to_what_was_open_or_came_later():
    early, open_then, later = answered(1.0), answered(1.1), answered(3.0)
    mark = Mark(2.0, [open_then])
    assert mark.later_answers(load_of(early, open_then, later)) == [open_then, later]


@pytest.mark.parametrize(
    ("phase", "weight", "stable", "canary", "expected"),
    [
        (Phase.LOADING, 0.0, "1", None, False),
        (Phase.SHIFTING, 10.0, "1", ("2", 10.0), False),
        (Phase.SHIFTING, 10.0, "1", None, True),
        (Phase.SHIFTING, 10.0, "1", ("2", 50.0), True),
        (Phase.DRAINING, 0.0, "2", None, False),
        (Phase.DRAINING, 0.0, "1", None, True),
        (Phase.ROLLING_BACK, 0.0, "1", ("2", 10.0), True),
        (Phase.ROLLED_BACK, 0.0, "1", None, False),
    ],
)
def test_a_torn_record_says_one_thing_and_does_another(phase, weight, stable, canary, expected):
    step = int(weight > 0) + 1
    state = RollState(
        roll="r", model="m", source="1", target="2", phase=phase, step=step, weight=weight
    )
    fields = {b"stable": stable.encode(), b"roll": state.to_wire()}
    if canary is not None:
        fields[b"canary"] = orjson.dumps({"version": canary[0], "weight": canary[1]})
    assert torn(Record(seen_at=0.0, server_ms=0.0, fields=fields)) is expected
