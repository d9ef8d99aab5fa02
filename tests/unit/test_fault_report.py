"""What the fault matrix says of its runs, and which runs there are."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from fault.checker import check
from fault.report import RunResult, summary, table
from rich.console import Console

ROOT = Path(__file__).parents[2]
SUBMITTED = {
    "event": "submitted",
    "id": "a",
    "at_ms": 0,
    "digest": "d",
    "expected": ["ok"],
    "timeout_ms": 1000,
}
COMPUTED = {"event": "computed", "id": "a", "at_ms": 1}
REPLIED = {
    "event": "replied",
    "id": "a",
    "at_ms": 2,
    "outcome": "ok",
    "digest": "d",
    "items": 1,
    "body": "b",
}
GOOD = [SUBMITTED, COMPUTED, REPLIED]


def result(lines, broken="", **changes):
    return RunResult(
        run="x", verdict=check(lines), duration_s=1.0, folder=Path("x"), broken=broken, **changes
    )


def test_good_runs_are_summed_up_and_hold():
    line = summary([result(GOOD), result(GOOD)])
    assert line.pop("holds") is True
    assert (line.pop("failed"), line.pop("not_played")) == ([], [])
    assert line == {
        "runs": 2, "requests": 2, "lost": 0, "duplicate_answers": 0, "wrong": 0, "late": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "broken", "count"),
    [
        ([SUBMITTED], "", {"lost": 1}),
        ([*GOOD, {**REPLIED, "items": 2}], "", {"duplicate_answers": 1}),
        ([SUBMITTED, COMPUTED, {**REPLIED, "at_ms": 9999}], "", {"late": 1}),
        ([SUBMITTED, COMPUTED, {**REPLIED, "digest": "e"}], "", {"wrong": 1}),
        ([*GOOD, {**REPLIED, "body": "c"}], "", {"wrong": 1}),
        ([*GOOD, {**COMPUTED, "id": "b"}], "", {"wrong": 1}),
        ([*GOOD, COMPUTED], "", {"wrong": 1}),
        ([], "", {"requests": 0}),
        (GOOD, "the point was not reached", {"requests": 1}),
    ],
)
def test_a_run_at_fault_is_counted_and_shown(lines, broken, count):
    results = [result(lines, broken), result(GOOD)]
    line = summary(results)
    expected = {"requests": 2, "lost": 0, "duplicate_answers": 0, "wrong": 0, "late": 0, **count}
    expected["requests"] = 1 + len({one["id"] for one in lines if one["event"] == "submitted"})
    assert {name: line[name] for name in expected} == expected
    assert not line["holds"]
    assert (line["failed"], line["not_played"]) == (["x"], [])
    console = Console(width=200, file=io.StringIO())
    console.print(table(results))
    assert "NO: " in console.file.getvalue()


def test_a_run_that_was_not_played_is_told_apart_and_does_not_hold():
    line = summary([result([SUBMITTED, COMPUTED, REPLIED], "no work", is_provoked=False)])
    assert (line["holds"], line["failed"], line["not_played"]) == (False, [], ["x"])


def test_what_its_history_shows_counts_although_it_was_not_played():
    line = summary([result([SUBMITTED], "no work", is_provoked=False)])
    assert (line["holds"], line["failed"], line["not_played"]) == (False, ["x"], [])


def test_no_run_at_all_does_not_hold():
    assert not summary([])["holds"]


def listed(*arguments):
    command = [sys.executable, "-m", "tests.fault", "--list", *arguments]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.split()


def test_the_matrix_is_large_enough_and_its_names_differ():
    code, names = listed()
    assert code == 0
    assert len(names) >= 60
    assert len(set(names)) == len(names)
    _, quick = listed("--quick")
    assert 10 < len(quick) < len(names)
    assert set(quick) < set(names)


def test_runs_are_chosen_by_their_first_words():
    assert listed("f19.se") == (0, ["f19.segv"])
    assert listed("nonsense")[0] == 2
