"""`python -m tests.support.outcomes TEST …` runs tests and prints what became of each as JSON."""

import sys
from collections import defaultdict

import orjson
import pytest


class Outcomes:
    """Notes each case under its file and function; a case is what its worst phase was."""

    def __init__(self):
        self.found = defaultdict(dict)

    def pytest_runtest_logreport(self, report):
        """Called by pytest after each phase of a case."""
        cases = self.found[report.nodeid.partition("[")[0]]
        if report.outcome != "passed" or report.nodeid not in cases:
            cases[report.nodeid] = report.outcome


def main(arguments):
    """Run, and print `{file::function: [outcome of each case]}`; ends with pytest's exit code."""
    outcomes = Outcomes()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[outcomes])
    told = {name: sorted(cases.values()) for name, cases in outcomes.found.items()}
    sys.stdout.write("\n" + orjson.dumps(told).decode() + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
