"""The setting `allow_environments`, as it is written and as it is read."""

import pytest

from batchfleet.models.environment_rule import EnvironmentRule
from batchfleet.service.code_terms import code_terms_fault, environment_terms_fault, variables_fault

LOCKED = "env:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "runs", "refused"),
    [
        ("", [LOCKED], ["/opt/a"]),
        ("built", [LOCKED], ["/opt/a", "/built"]),
        ("none", [], [LOCKED, "/opt/a", "/none"]),
        ("/opt/a", ["/opt/a", "/opt/a/"], [LOCKED, "/opt/ab", "/opt", "/opt/a/b", "/opt/b/../a"]),
        ("built,/opt/a/,/opt/b", [LOCKED, "/opt/a", "/opt/b"], ["/opt/c"]),
    ],
)
def test_nothing_runs_but_what_is_listed(text, runs, refused):
    """X1: by its very name."""
    assert environment_terms_fault(text) == ""
    rule = EnvironmentRule.parse(text)
    assert [rule.refusal(name) for name in runs] == [""] * len(runs)
    for name in refused:
        assert f"allow_environments is {rule}" in rule.refusal(name)
    assert EnvironmentRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["any", "opt/a", "built,none", "env:" + "a" * 64, "/a,,/b", "/a\n"]
)
def test_other_texts_are_refused(text):
    assert "built" in environment_terms_fault(text)


@pytest.mark.parametrize("text", ["", "none", "any", "own,dist:a.B-c_1,digest:" + "0" * 64])
def test_terms_of_code_are_accepted(text):
    assert code_terms_fault(text) == ""


@pytest.mark.parametrize("text", ["dist:", "dist:a b", "any,own", "dist:../x", "own,", "digest:0"])
def test_other_terms_of_code_are_refused(text):
    assert "dist:<name>" in code_terms_fault(text)


def test_names_of_variables_are_checked():
    assert variables_fault("AWS_*,MY_KEY, ?_X") == ""
    assert "names" in variables_fault("A=b")
    assert "names" in variables_fault("A,,B")
