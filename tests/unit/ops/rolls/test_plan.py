"""What an operator may ask of a roll."""

import pytest

from batchfleet.ops.rolls.plan import PLAN_RANGES, Plan, check_number, parse_steps, read_plan
from batchfleet.wire.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("1,10,50,100", (1.0, 10.0, 50.0, 100.0)),
        ("100", (100.0,)),
        ("0.5%, 20%,100%", (0.5, 20.0, 100.0)),
    ],
)
def test_steps_are_read(text, weights):
    assert parse_steps(text) == weights


@pytest.mark.parametrize(
    "text",
    ["", "50", "0,100", "10,10,100", "50,10,100", "10,101", "ten,100", "nan,100", "1e400,100"],
)
def test_other_steps_are_refused(text):
    with pytest.raises(SettingsError, match="rising percentages"):
        parse_steps(text)


def test_there_are_so_many_steps_at_most():
    with pytest.raises(SettingsError, match="1 to 32"):
        parse_steps(",".join(map(str, range(60, 101))))


def test_a_plan_comes_back_as_it_was_written():
    plan = Plan(weights=(5.0, 100.0), hold_s=0.5, min_samples=0, min_ready=2)
    assert read_plan(plan.to_json()) == plan


@pytest.mark.parametrize("name", sorted(PLAN_RANGES))
@pytest.mark.parametrize("value", [-1, 1e12, "5", None, True, float("nan")])
def test_numbers_out_of_their_range_are_refused(name, value):
    with pytest.raises(SettingsError, match=name):
        check_number(name, value)
    with pytest.raises(SettingsError):
        read_plan({**Plan().to_json(), name: value})


def test_a_plan_with_foreign_parts_is_refused():
    with pytest.raises(SettingsError, match="speed"):
        read_plan({**Plan().to_json(), "speed": 1})
    with pytest.raises(SettingsError, match="strategy"):
        read_plan({**Plan().to_json(), "strategy": "big bang"})
