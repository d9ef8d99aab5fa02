"""The deliberate faults fit the tree; whether tests notice them is for `make mutants` to say."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])
def test_the_text_to_replace_is_there_once(mutant):
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert mutant.applied_to(text) != text


def test_names_are_used_once():
    assert set(Counter(one.name for one in MUTANTS).values()) == {1}


def test_their_tests_exist():
    tests = sorted({test for mutant in MUTANTS for test in mutant.tests})
    assert all(mutant.tests for mutant in MUTANTS)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *tests], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("text", ["", "one one"])
def test_a_text_that_is_not_there_once_is_refused(text):
    mutant = Mutant(name="n", breaks="b", path="p", before="one", after="two", tests=())
    with pytest.raises(ValueError, match="not once"):
        mutant.applied_to(text)
